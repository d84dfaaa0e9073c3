// The base of every C ABI of Cenote: handles, and how errors and structs that grow cross it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "client/handle_table.hpp"
#include "client/thread_object.hpp"
#include "core/error.hpp"

namespace cenote::c_api {

/// Of a call that did what it was asked for; all else is an error_code.
inline constexpr int success = 0;

/// The object and the kind of a handle's type; see handle_table.
template <class Handle>
struct handle_traits;

inline std::string& last_message() {
  return client::thread_object<std::string>();
}

inline int failed(const error& failure) noexcept {
  try {
    last_message() = failure.message();
  } catch (const std::bad_alloc&) {
    last_message().clear();
  }
  return static_cast<int>(failure.code());
}

inline int null_argument(const char* name) {
  return failed({error_code::invalid_argument, std::string(name) + " is a null pointer"});
}

/// No exception crosses the ABI.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return failed({error_code::system, "out of memory"});
  } catch (const std::exception& thrown) {
    return failed({error_code::internal, thrown.what()});
  }
}

/// A call's use of a handle: its object stays until the call has ended.
template <class Handle>
class handle_use {
 public:
  explicit handle_use(const Handle* handle) noexcept
      : place_(client::handle_table::instance().enter(number_of(handle), handle_traits<Handle>::kind)) {}
  handle_use(const handle_use&) = delete;
  handle_use& operator=(const handle_use&) = delete;
  ~handle_use() {
    if (place_ != nullptr) client::handle_table::leave(*place_);
  }

  /// success, or why the handle cannot be used: it was freed, or is the parent process's.
  [[nodiscard]] int check(const Handle* handle) const {
    if (place_ == nullptr) [[unlikely]]
      return failed(client::handle_table::refusal(number_of(handle), handle_traits<Handle>::kind));
    if (place_->object->process.in_child()) [[unlikely]]
      return failed(
          {error_code::forked, "this handle belongs to the parent process; attach or open again in the child"});
    return success;
  }
  /// Refuses later calls; the object goes with the last one that is under way. False: the handle is being freed
  /// already.
  [[nodiscard]] bool end() const noexcept { return place_->gate.end(); }
  [[nodiscard]] auto& operator*() const noexcept {
    return static_cast<typename handle_traits<Handle>::object&>(*place_->object);
  }
  [[nodiscard]] auto* operator->() const noexcept { return &**this; }

 private:
  static std::uintptr_t number_of(const Handle* handle) noexcept { return reinterpret_cast<std::uintptr_t>(handle); }

  client::handle_place* place_;
};

/// body(the handle's object), unless the handle cannot be used.
template <class Handle, class Body>
int call(Handle* handle, Body&& body) noexcept {
  return guarded([&] {
    const handle_use<std::remove_const_t<Handle>> used(handle);
    const int status = used.check(handle);
    return status == success ? body(*used) : status;
  });
}

/// Clears the results of a call that may do nothing.
template <class... Out>
void clear_results(Out*... results) noexcept {
  static_cast<void>(((results == nullptr || (*results = Out{}, true)) && ...));
}

/// Makes the handle of a new object. `before_use`: done with its place, before the handle is given out.
template <class Handle, class Object, class Step>
int hand_out(Handle** out, std::unique_ptr<Object> object, Step&& before_use) {
  const auto reserved = client::handle_table::instance().reserve(handle_traits<Handle>::kind);
  if (!reserved) return failed(reserved.error());
  before_use(*object, *reserved->place);
  client::handle_table::publish(*reserved, std::move(object));
  *out = reinterpret_cast<Handle*>(reserved->handle);  // NOLINT(performance-no-int-to-ptr): a number for the table
  return success;
}
template <class Handle, class Object>
int hand_out(Handle** out, std::unique_ptr<Object> object) {
  return hand_out(out, std::move(object), [](const auto&, const auto&) {});
}

/// Ends a handle after `last_call`, which runs while other calls may still use the object. In a forked
/// child nothing is ended: threads, mappings and drivers stayed with the parent.
template <class Handle, class Call>
void free_handle(Handle* handle, Call&& last_call) noexcept {
  if (handle == nullptr) return;
  static_cast<void>(guarded([&] {
    const handle_use<Handle> used(handle);
    if (const int status = used.check(handle); status != success) return status;
    if (used.end()) last_call(*used);
    return static_cast<int>(success);
  }));
}
template <class Handle>
void free_handle(Handle* handle) noexcept {
  free_handle(handle, [](const auto&) {});
}

template <class T>
int finish(const result<T>& outcome) {
  return outcome ? success : failed(outcome.error());
}

template <class T, class Out>
int finish(const result<T>& outcome, Out* out) {
  if (!outcome) return failed(outcome.error());
  if (out != nullptr) *out = static_cast<Out>(*outcome);
  return success;
}

/// The first `struct_size` bytes that the caller has, zeros behind.
template <class T>
result<T> versioned(const T& source, const char* type) {
  if (source.struct_size < 2 * sizeof(std::uint32_t) || source.struct_size > 4096) {
    return fail(error_code::invalid_argument, std::string(type) + ": struct_size is " +
                                                  std::to_string(source.struct_size) + "; set it to sizeof(" + type +
                                                  ")");
  }
  T copy{};
  std::memcpy(&copy, &source, std::min<std::size_t>(source.struct_size, sizeof(T)));
  return copy;
}

}  // namespace cenote::c_api
