// Memory that each thread keeps between calls, for calls at any time: the handlers of exit() run after the thread-local
// objects of the main thread are destroyed.
#pragma once

#include <memory>
#include <utility>

namespace cenote::client {

/// The T of this thread for `Tag`. It goes with the thread; one that is wanted even after that goes with the process.
template <class T, class Tag = T>
T& thread_object() {
  static thread_local constinit T* object = nullptr;
  struct end_of_thread {
    end_of_thread() = default;
    end_of_thread(const end_of_thread&) = delete;
    end_of_thread& operator=(const end_of_thread&) = delete;
    ~end_of_thread() { static_cast<void>(std::unique_ptr<T>(std::exchange(object, nullptr))); }
  };
  if (object == nullptr) [[unlikely]] {
    static thread_local end_of_thread end;
    static_cast<void>(end);
    object = std::make_unique<T>().release();
  }
  return *object;
}

}  // namespace cenote::client
