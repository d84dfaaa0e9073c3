// A response promise that cannot be forgotten.
#pragma once

#include <caf/sec.hpp>
#include <caf/typed_response_promise.hpp>

#include <utility>

namespace cenote {

/// CAF drops a promise silently, and its requester then waits for its own time-out. This one delivers an error when it
/// is destroyed unfulfilled. Move-only; belongs to the actor that made it.
template <class T>
class promise_guard {
 public:
  explicit promise_guard(caf::typed_response_promise<T> promise) : promise_(std::move(promise)) {}
  promise_guard(promise_guard&& other) noexcept
      : promise_(std::move(other.promise_)), open_(std::exchange(other.open_, false)) {}
  promise_guard& operator=(promise_guard&& other) noexcept {
    std::swap(promise_, other.promise_);
    std::swap(open_, other.open_);
    return *this;
  }
  promise_guard(const promise_guard&) = delete;
  promise_guard& operator=(const promise_guard&) = delete;
  ~promise_guard() {
    if (open_) promise_.deliver(caf::make_error(caf::sec::request_receiver_down));
  }

  void deliver(T value) {
    open_ = false;
    promise_.deliver(std::move(value));
  }

 private:
  caf::typed_response_promise<T> promise_;
  bool open_ = true;
};

}  // namespace cenote
