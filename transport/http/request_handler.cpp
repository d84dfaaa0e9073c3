#include "transport/http/request_handler.hpp"

#include <algorithm>
#include <utility>

#include "core/json_writer.hpp"
#include "core/text.hpp"

namespace cenote::http {

namespace {

constexpr char lower_case(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool is_same_name(std::string_view one, std::string_view two) noexcept {
  return one.size() == two.size() &&
         std::ranges::equal(one, two, [](char a, char b) { return lower_case(a) == lower_case(b); });
}

void reply_event::fire() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_fired_, true) || !wake_) return;
  std::exchange(wake_, nullptr)();
}

void reply_event::arm(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (has_fired_) return wake();
  wake_ = std::move(wake);
}

void reply_event::disarm() noexcept {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
}

std::string_view http_request::header(std::string_view name) const noexcept {
  for (const http_field& each : fields) {
    if (is_same_name(each.name, name)) return each.value;
  }
  return {};
}

bool http_request::has_type(std::string_view type) const noexcept {
  return is_same_name(trimmed(content_type.substr(0, content_type.find(';'))), type);
}

void http_reply::clear() {
  status = 200;
  content_type = "application/json";
  body.clear();
  allow.clear();
  challenge = "Bearer";
  retry_after = 0;
  rest.reset();
  event.reset();
}

void http_reply::fail(int error_status, std::string_view text) {
  clear();
  status = error_status;
  body = "{\"error\":";
  append_json_text(body, text);
  body += "}\n";
}

void http_reply::refuse_method(std::string_view methods) {
  fail(405, std::string("this path knows ") + std::string(methods) + " only");
  allow = methods;
}

std::string_view status_text(int status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

}  // namespace cenote::http
