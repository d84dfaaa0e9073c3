#include "transport/http/request.hpp"

namespace cenote::http {

namespace {

constexpr int bad_request = 400;
constexpr int not_found = 404;
constexpr int method_not_allowed = 405;
constexpr int too_large = 431;

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case bad_request: return "Bad Request";
    case not_found: return "Not Found";
    case method_not_allowed: return "Method Not Allowed";
    case too_large: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    default: return "Service Unavailable";
  }
}

request refused(int status) {
  request found;
  found.refusal = status;
  return found;
}

}  // namespace

std::optional<request> parse_request(std::string_view received) {
  const auto end = received.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (received.size() < max_request_bytes) return std::nullopt;
    return refused(too_large);
  }
  const std::string_view line = received.substr(0, received.find("\r\n"));
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !line.substr(last + 1).starts_with("HTTP/1.")) {
    return refused(bad_request);
  }
  const std::string_view method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") return refused(method_not_allowed);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  return request{.path = std::string(target.substr(0, target.find('?'))), .head_only = method == "HEAD", .refusal = 0};
}

std::string encode(const answer& content, bool head_only) {
  std::string text = "HTTP/1.1 " + std::to_string(content.status) + " ";
  text += reason_of(content.status);
  text += "\r\nContent-Type: " + content.type + "\r\nContent-Length: " + std::to_string(content.body.size()) +
          "\r\nConnection: close\r\n" + (content.status == method_not_allowed ? "Allow: GET, HEAD\r\n" : "") + "\r\n";
  if (!head_only) text += content.body;
  return text;
}

answer refusal_of(int status) {
  std::string body(reason_of(status));
  if (status == not_found) body += "; there are /metrics, /healthz and /status";
  return {status, "text/plain", body + "\n"};
}

}  // namespace cenote::http
