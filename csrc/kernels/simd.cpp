#include "simd.hpp"

namespace quadrat {

const char* simd_level() {
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
