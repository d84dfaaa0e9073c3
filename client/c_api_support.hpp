// What the files of the C ABI share: handles, and how errors and structs that grow cross it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "client/cenote.h"
#include "client/device_events.hpp"
#include "client/fork_guard.hpp"
#include "client/session.hpp"

struct cenote_session {
  cenote::client::session_ptr impl;
};

struct cenote_device {
  std::shared_ptr<cenote::device> impl;
  cenote::client::fork_guard process;
};

struct cenote_stream {
  cenote::client::device_stream impl;
  cenote::client::fork_guard process;
};

namespace cenote::c_api {

inline std::string& last_message() {
  thread_local std::string message;
  return message;
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
