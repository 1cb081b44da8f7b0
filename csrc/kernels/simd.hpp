// How functions are compiled.
//
// QUADRAT_CLONES compiles a function for the x86-64 baseline, v3 (AVX2) and v4 (AVX-512) and lets the loader choose.
// It is empty where clones do not exist: other processors, musl, Windows, macOS, and sanitizer builds, whose run time
// is not ready when the loader resolves them.
#pragma once

#include <cstdint>  // on glibc this also defines __GLIBC__

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(QUADRAT_NO_CLONES) && \
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

// What the GPU's kernels compute with the same source as the CPU's.
#if defined(__CUDACC__)
#define QUADRAT_HOST_DEVICE __host__ __device__
#else
#define QUADRAT_HOST_DEVICE
#endif

#ifndef __CUDACC__  // whose front end need not know these builtins
namespace quadrat {

// The level the loader chose: "x86-64-v4", "x86-64-v3", "x86-64" or "portable" where there are no clones.
inline const char* simd_level() {
#if QUADRAT_HAS_CLONES
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return "x86-64-v4";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("fma")) {
        return "x86-64-v3";
    }
    return "x86-64";
#else
    return "portable";
#endif
}

}  // namespace quadrat
#endif
