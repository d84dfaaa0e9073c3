#include "transport/http/bearer_token.hpp"

#include <algorithm>

#include "transport/http/request_handler.hpp"

namespace cenote::http {

namespace {

bool is_equal_secret(std::string_view sent, std::string_view secret) noexcept {
  unsigned difference = sent.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    difference |= static_cast<unsigned char>(sent[i]) ^ static_cast<unsigned char>(secret[i % secret.size()]);
  }
  return difference == 0;
}

std::string_view bearer_token(std::string_view authorization) noexcept {
  constexpr std::string_view scheme = "Bearer ";
  if (!is_same_name(authorization.substr(0, scheme.size()), scheme)) return {};
  authorization.remove_prefix(scheme.size());
  return authorization.substr(std::min(authorization.find_first_not_of(' '), authorization.size()));
}

}  // namespace

bool has_bearer_token(std::string_view authorization, std::string_view token) noexcept {
  return is_equal_secret(bearer_token(authorization), token);
}

}  // namespace cenote::http
