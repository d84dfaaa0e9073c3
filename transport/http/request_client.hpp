// Asks a service over HTTP, one request a connection.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/endpoint.hpp"
#include "core/error.hpp"

namespace cenote::http {

/// Where a service answers, and what it wants to see.
struct service_address {
  endpoint address{};    ///< of TCP
  std::string socket{};  ///< a Unix socket in its place
  std::string token{};   ///< sent as `Authorization: Bearer`; empty: none
  std::string ca{};      ///< PEM file of authorities: TLS, and the server's certificate is checked; empty: no TLS
  std::string certificate{}, key{};  ///< PEM files of this client, where the server asks for one
};

struct service_request {
  std::string_view method = "GET";
  std::string_view target{};  ///< "/v1/pods"
  std::string_view body{};
  std::string_view content_type = "application/json";
};

struct service_answer {
  int status = 0;
  std::string body;
};

/// The answer, whatever its status. Errors: system (nothing listens there), deadline_exceeded, malformed (no HTTP, or
/// more than 1 GiB), invalid_argument (a certificate). Thread-safe.
[[nodiscard]] result<service_answer> ask_service(const service_address& service, const service_request& request,
                                                 std::chrono::milliseconds limit);

/// Takes a part of a body; false: the rest is not wanted.
using part_visitor = std::function<bool(std::string_view part)>;

/// The same of an answer that may go on for long: with status 200 the body goes to `visit` as it comes, on this thread,
/// and the answer has none. The limit is that of the whole. Errors besides: deadline_exceeded where `stop` was
/// requested, malformed (a text of more than 1 MiB with another status).
[[nodiscard]] result<service_answer> follow_service(const service_address& service, const service_request& request,
                                                    std::chrono::milliseconds limit, const part_visitor& visit,
                                                    const std::stop_token& stop);

}  // namespace cenote::http
