// What the files of the C ABI share: handles, and how errors and structs that grow cross it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "client/cenote.h"
#include "client/device_events.hpp"
#include "client/handle_table.hpp"
#include "client/session.hpp"
#include "client/thread_object.hpp"

namespace cenote::c_api {

// The objects behind the handles. The types of cenote.h are never complete: a handle is a number, see handle_table.

struct session_object : client::handle_object {
  explicit session_object(client::session_ptr session) noexcept : impl(std::move(session)) {}
  client::session_ptr impl;
};

struct device_object : client::handle_object {
  explicit device_object(std::shared_ptr<device> opened) noexcept : impl(std::move(opened)) {}
  std::shared_ptr<device> impl;
};

struct stream_object : client::handle_object {
  explicit stream_object(client::device_stream opened) noexcept : impl(std::move(opened)) {}
  client::device_stream impl;
};

template <class Handle>
struct handle_traits;
template <>
struct handle_traits<cenote_session> {
  using object = session_object;
  static constexpr auto kind = client::handle_kind::session;
};
template <>
struct handle_traits<cenote_device> {
  using object = device_object;
  static constexpr auto kind = client::handle_kind::device;
};
template <>
struct handle_traits<cenote_stream> {
  using object = stream_object;
  static constexpr auto kind = client::handle_kind::stream;
};

inline std::string& last_message() {
  return client::thread_object<std::string>();
}

inline int failed(const error& why) noexcept {
  try {
    last_message() = why.message();
  } catch (const std::bad_alloc&) {
    last_message().clear();
  }
  return static_cast<int>(why.code());
}

inline int null_argument(const char* what) {
  return failed({error_code::invalid_argument, std::string(what) + " is a null pointer"});
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

  /// CENOTE_OK, or why the handle cannot be used: it was freed, or is the parent process's.
  [[nodiscard]] int check(const Handle* handle) const {
    if (place_ == nullptr) [[unlikely]]
      return failed(client::handle_table::refusal(number_of(handle), handle_traits<Handle>::kind));
    if (place_->object->process.in_child()) [[unlikely]]
      return failed(
          {error_code::forked, "this handle belongs to the parent process; attach or open again in the child"});
    return CENOTE_OK;
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
    return status == CENOTE_OK ? body(*used) : status;
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
  return CENOTE_OK;
}
template <class Handle, class Object>
int hand_out(Handle** out, std::unique_ptr<Object> object) {
  return hand_out(out, std::move(object), [](const auto&, const auto&) {});
}

/// The handle of a session; its gate counts the session's calls.
inline int hand_out_session(cenote_session** out, client::session_ptr session) {
  return hand_out(out, std::make_unique<session_object>(std::move(session)),
                  [](session_object& made, client::handle_place& place) { made.impl->use_gate(place.gate); });
}

/// Ends a handle after `last_call`, which runs while other calls may still use the object. In a forked
/// child nothing is ended: threads, mappings and drivers stayed with the parent.
template <class Handle, class Call>
void free_handle(Handle* handle, Call&& last_call) noexcept {
  if (handle == nullptr) return;
  static_cast<void>(guarded([&] {
    const handle_use<Handle> used(handle);
    if (const int status = used.check(handle); status != CENOTE_OK) return status;
    if (used.end()) last_call(*used);
    return static_cast<int>(CENOTE_OK);
  }));
}
template <class Handle>
void free_handle(Handle* handle) noexcept {
  free_handle(handle, [](const auto&) {});
}

template <class T>
int finish(const result<T>& outcome) {
  return outcome ? CENOTE_OK : failed(outcome.error());
}

template <class T, class Out>
int finish(const result<T>& outcome, Out* out) {
  if (!outcome) return failed(outcome.error());
  if (out != nullptr) *out = static_cast<Out>(*outcome);
  return CENOTE_OK;
}

inline int finish(const client::put_report& report, std::uint64_t* stored) {
  if (stored != nullptr) *stored = report.stored;
  return finish(report.status);
}

inline int finish(const result<client::match_result>& outcome, cenote_match* out) {
  if (!outcome) return failed(outcome.error());
  *out = {outcome->resident, outcome->reachable};
  return CENOTE_OK;
}

/// The first `struct_size` bytes that the caller has, zeros behind.
template <class T>
result<T> versioned(const T& given, const char* what) {
  if (given.struct_size < 2 * sizeof(std::uint32_t) || given.struct_size > 4096) {
    return fail(error_code::invalid_argument, std::string(what) + ": struct_size is " +
                                                  std::to_string(given.struct_size) + "; set it to sizeof(" + what +
                                                  ")");
  }
  T copy{};
  std::memcpy(&copy, &given, std::min<std::size_t>(given.struct_size, sizeof(T)));
  return copy;
}

}  // namespace cenote::c_api
