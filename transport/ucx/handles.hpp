// What UCX hands out and wants back.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "transport/ucx/library.hpp"

namespace cenote::ucx {

/// Owns one handle and gives it back with one of the library's functions. It keeps the library.
template <class Handle, auto GiveBack>
class owned {
 public:
  owned() = default;
  owned(std::shared_ptr<const library> from, Handle* handle) : library_(std::move(from)), handle_(handle) {}
  owned(owned&& other) noexcept : library_(std::move(other.library_)), handle_(std::exchange(other.handle_, nullptr)) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  owned(const owned&) = delete;
  owned& operator=(const owned&) = delete;
  ~owned() {
    if (handle_ != nullptr) ((*library_).*GiveBack)(handle_);
  }

  [[nodiscard]] Handle* get() const noexcept { return handle_; }

 private:
  std::shared_ptr<const library> library_;
  Handle* handle_ = nullptr;
};

using context_handle = owned<ucp_context, &library::ucp_cleanup>;
/// A worker ends after all its endpoints did.
using worker_handle = owned<ucp_worker, &library::ucp_worker_destroy>;
using listener_handle = owned<ucp_listener, &library::ucp_listener_destroy>;

/// "ucp_ep_create: Destination is unreachable" as an error of the system.
[[nodiscard]] inline error error_of(const library& from, const char* call, ucs_status_t status) {
  return {error_code::system, std::string(call) + ": " + from.ucs_status_string(status)};
}

}  // namespace cenote::ucx
