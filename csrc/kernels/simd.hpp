// QUADRAT_CLONES compiles a function for the x86-64 baseline, v3 (AVX2) and v4 (AVX-512) and lets the loader choose.
// It is empty where clones do not exist: other processors, musl, Windows, macOS, and sanitizer builds, whose run time
// is not ready when the loader resolves them.
#pragma once

#include <cstdint>  // on glibc this also defines __GLIBC__

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define QUADRAT_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(QUADRAT_NO_CLONES)
#define QUADRAT_SANITIZED 1
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(QUADRAT_SANITIZED) && \
    ((defined(__clang__) && __clang_major__ >= 17) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 12))
#define QUADRAT_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define QUADRAT_HAS_CLONES 1
#else
#define QUADRAT_CLONES
#define QUADRAT_HAS_CLONES 0
#endif

// Before a loop: none of its turns reads what another writes.
#if defined(__clang__)
#define QUADRAT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define QUADRAT_INDEPENDENT _Pragma("GCC ivdep")
#else
#define QUADRAT_INDEPENDENT
#endif

namespace quadrat {

// The level the loader chose: "x86-64-v4", "x86-64-v3", "x86-64" or "portable" where there are no clones.
const char* simd_level();

}  // namespace quadrat
