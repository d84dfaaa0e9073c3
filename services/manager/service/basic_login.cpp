#include "services/manager/service/basic_login.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>

#include "core/text.hpp"

namespace cenote::manager {

namespace {

constexpr std::string_view scheme = "basic ";
constexpr std::size_t longest_login = 4'096;  ///< bytes of base64

bool is_base64_digit(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/';
}

/// Nothing: it is not base64, with its padding.
std::optional<std::string> decoded(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > longest_login) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (!std::ranges::all_of(text.substr(0, text.size() - padding), is_base64_digit)) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size =
      ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                        reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0 || static_cast<std::size_t>(size) != bytes.size()) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace

std::optional<basic_login> read_basic_login(std::string_view authorization) {
  const bool is_basic = authorization.size() > scheme.size() &&
                        std::ranges::equal(authorization.substr(0, scheme.size()), scheme, [](char sent, char letter) {
                          return std::tolower(static_cast<unsigned char>(sent)) == letter;
                        });
  if (!is_basic) return std::nullopt;
  const auto login = decoded(trimmed(authorization.substr(scheme.size())));
  if (!login) return std::nullopt;
  const std::size_t colon = login->find(':');
  if (colon == std::string::npos) return std::nullopt;
  return basic_login{.name = login->substr(0, colon), .password = login->substr(colon + 1)};
}

}  // namespace cenote::manager
