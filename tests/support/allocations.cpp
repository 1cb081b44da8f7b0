// Makes a library's calls for memory fail: of one library that is loaded, and of no other. Its tables of the functions
// that it imports are changed, so that malloc, mmap, operator new and the like come here first.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

long calls = 0;       // since `fail`
long first = 0;       // the first call that fails
long last = 0;        // the last one
const char* library;  // a part of its path
int replaced = 0;

bool fails() {
    const long call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return call >= first && call <= last;
}

void* fail_malloc(std::size_t size) { return fails() ? nullptr : std::malloc(size); }
void* fail_calloc(std::size_t count, std::size_t size) { return fails() ? nullptr : std::calloc(count, size); }
void* fail_realloc(void* data, std::size_t size) { return fails() ? nullptr : std::realloc(data, size); }
void* fail_aligned_alloc(std::size_t align, std::size_t size) {
    return fails() ? nullptr : std::aligned_alloc(align, size);
}
int fail_posix_memalign(void** out, std::size_t align, std::size_t size) {
    return fails() ? ENOMEM : posix_memalign(out, align, size);
}
void* fail_mmap(void* data, std::size_t size, int protection, int flags, int file, off_t offset) {
    return fails() ? MAP_FAILED : mmap(data, size, protection, flags, file, offset);
}
void* fail_mremap(void* data, std::size_t before, std::size_t after, int flags, ...) {
    return fails() ? MAP_FAILED : mremap(data, before, after, flags);
}
void* fail_new(std::size_t size) { return fails() ? throw std::bad_alloc() : ::operator new(size); }
void* fail_new_nothrow(std::size_t size, const std::nothrow_t& tag) noexcept {
    return fails() ? nullptr : ::operator new(size, tag);
}
void* fail_new_aligned(std::size_t size, std::align_val_t align) {
    return fails() ? throw std::bad_alloc() : ::operator new(size, align);
}
void* fail_new_aligned_nothrow(std::size_t size, std::align_val_t align, const std::nothrow_t& tag) noexcept {
    return fails() ? nullptr : ::operator new(size, align, tag);
}

// `operator new[]` has another name and does the same.
const struct {
    const char* name;
    void* function;
} functions[] = {
    {"malloc", reinterpret_cast<void*>(fail_malloc)},
    {"calloc", reinterpret_cast<void*>(fail_calloc)},
    {"realloc", reinterpret_cast<void*>(fail_realloc)},
    {"aligned_alloc", reinterpret_cast<void*>(fail_aligned_alloc)},
    {"posix_memalign", reinterpret_cast<void*>(fail_posix_memalign)},
    {"mmap", reinterpret_cast<void*>(fail_mmap)},
    {"mmap64", reinterpret_cast<void*>(fail_mmap)},
    {"mremap", reinterpret_cast<void*>(fail_mremap)},
    {"_Znwm", reinterpret_cast<void*>(fail_new)},
    {"_Znam", reinterpret_cast<void*>(fail_new)},
    {"_ZnwmRKSt9nothrow_t", reinterpret_cast<void*>(fail_new_nothrow)},
    {"_ZnamRKSt9nothrow_t", reinterpret_cast<void*>(fail_new_nothrow)},
    {"_ZnwmSt11align_val_t", reinterpret_cast<void*>(fail_new_aligned)},
    {"_ZnamSt11align_val_t", reinterpret_cast<void*>(fail_new_aligned)},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", reinterpret_cast<void*>(fail_new_aligned_nothrow)},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", reinterpret_cast<void*>(fail_new_aligned_nothrow)},
};

// The table may be read-only by now.
void put(void** slot, void* function) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    void* const start = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(slot) & ~(page - 1));
    if (mprotect(start, 2 * page, PROT_READ | PROT_WRITE) == 0 || mprotect(start, page, PROT_READ | PROT_WRITE) == 0) {
        *slot = function;
        ++replaced;
    }
}

void replace(ElfW(Addr) base, const ElfW(Addr) * entries, int of, int bytes) {
    const auto* table = reinterpret_cast<const ElfW(Rela)*>(entries[of]);
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(entries[DT_SYMTAB]);
    const auto* names = reinterpret_cast<const char*>(entries[DT_STRTAB]);
    for (std::size_t i = 0; i < entries[bytes] / sizeof *table; ++i) {
        const auto symbol = ELF64_R_SYM(table[i].r_info);
        if (symbol == 0 || table[i].r_addend != 0 || symbols[symbol].st_shndx != SHN_UNDEF) {
            continue;
        }
        for (const auto& known : functions) {
            if (std::strcmp(known.name, names + symbols[symbol].st_name) == 0) {
                put(reinterpret_cast<void**>(base + table[i].r_offset), known.function);
            }
        }
    }
}

int visit(dl_phdr_info* info, std::size_t, void*) {
    if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, library) == nullptr) {
        return 0;
    }
    ElfW(Addr) entries[DT_JMPREL + 1] = {};  // of the dynamic section, by tag
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
            for (; dynamic->d_tag != DT_NULL; ++dynamic) {
                if (dynamic->d_tag > 0 && dynamic->d_tag <= DT_JMPREL) {
                    entries[dynamic->d_tag] = dynamic->d_un.d_ptr;
                }
            }
        }
    }
    if (entries[DT_SYMTAB] != 0 && entries[DT_STRTAB] != 0) {
        replace(info->dlpi_addr, entries, DT_RELA, DT_RELASZ);
        replace(info->dlpi_addr, entries, DT_JMPREL, DT_PLTRELSZ);
    }
    return 0;
}

}  // namespace

extern "C" {

// Changes the tables of the library whose path has `part` in it; how many entries were changed.
int watch(const char* part) {
    library = part;
    replaced = 0;
    dl_iterate_phdr(visit, nullptr);
    return replaced;
}

// From now on the calls from number `from` to number `to` fail; the first one is 1.
void fail(long from, long to) {
    calls = 0;
    first = from;
    last = to;
}

// How many calls there were since.
long seen() { return calls; }
}
