// quadrat._cuda. Importing it initialises nothing: worker processes may still fork.
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "launch.hpp"
#include "register.hpp"

namespace quadrat::cuda {
namespace {

void require_success(cudaError_t error) {
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // or the next launch would report it again
        throw std::runtime_error(std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error));
    }
}

// Makes a device current for this thread, and then the one before it again.
class DeviceGuard {
public:
    explicit DeviceGuard(int device) {
        require_success(cudaGetDevice(&before_));
        if (device != before_) {
            require_success(cudaSetDevice(device));
            switched_ = true;
        }
    }
    ~DeviceGuard() {
        if (switched_) {
            static_cast<void>(cudaSetDevice(before_));  // it was current a moment ago
        }
    }
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

private:
    int before_ = 0;
    bool switched_ = false;
};

std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

// The number that a function of CUDA gives; 0 where it fails.
template <typename Ask>
int number_of(Ask ask) {
    int number = 0;
    if (ask(&number) == cudaSuccess) {
        return number;
    }
    static_cast<void>(cudaGetLastError());
    return 0;
}

// Asks for the driver's version only, since counting devices would initialise the driver.
std::string description() {
    const int driver = number_of(&cudaDriverGetVersion);
    return "CUDA " + version(CUDART_VERSION) +
           ", architectures " QUADRAT_CUDA_TARGETS "; driver: " + (driver == 0 ? "none" : version(driver));
}

int device_count() { return number_of(&cudaGetDeviceCount); }

}  // namespace
}  // namespace quadrat::cuda

PYBIND11_MODULE(_cuda, m, pybind11::mod_gil_not_used()) {
    namespace py = pybind11;
    using namespace quadrat::cuda;
    m.doc() = "quadrat's CUDA kernels. Raw device addresses in, nothing owned, nothing waited for.";
    quadrat::translate_own_exceptions();
    m.def("description", &description);
    m.def("device_count", &device_count);
    const auto run = [](const auto& call, int device, std::uintptr_t stream) {
        const py::gil_scoped_release nogil;  // a launch waits while the stream's queue is full
        const DeviceGuard guard(device);
        require_success(launch(call, reinterpret_cast<cudaStream_t>(stream)));
    };
    register_kernels<int, std::uintptr_t>(m, run, py::arg("device"), py::arg("stream"));
}
