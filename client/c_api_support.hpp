// What the files of libcenote's C ABI share: the objects behind its handles, and its results.
#pragma once

#include <memory>
#include <utility>

#include "client/c_abi.hpp"
#include "client/cenote.h"
#include "client/device_events.hpp"
#include "client/session.hpp"

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

/// The handle of a session; its gate counts the session's calls.
inline int hand_out_session(cenote_session** out, client::session_ptr session) {
  return hand_out(out, std::make_unique<session_object>(std::move(session)),
                  [](session_object& made, client::handle_place& place) { made.impl->use_gate(place.gate); });
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

}  // namespace cenote::c_api
