// A stretch of work in which nothing of the user's runs, so that a pointer into what the user owns stays good.
#pragma once

#include <Python.h>

#include <utility>

namespace quadrat {

// The GIL is held, no Python code is called, and no garbage is collected: up to CPython 3.11 whatever makes a container
// may collect, and so call finalizers. Later versions collect between bytecodes only.
class Undisturbed {
public:
#if PY_VERSION_HEX < 0x030C0000
    Undisturbed() : collects_(PyGC_Disable() != 0) {}
    ~Undisturbed() {
        if (collects_) {
            PyGC_Enable();
        }
    }
#else
    Undisturbed() {}
    ~Undisturbed() {}
#endif
    Undisturbed(Undisturbed&& other) noexcept : collects_(std::exchange(other.collects_, false)) {}
    Undisturbed& operator=(Undisturbed&&) = delete;

private:
    bool collects_ = false;
};

}  // namespace quadrat
