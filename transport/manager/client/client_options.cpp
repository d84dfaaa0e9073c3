#include "transport/manager/client/client_options.hpp"

#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/private_file.hpp"
#include "core/text.hpp"

namespace cenote::manager {

namespace {

constexpr std::size_t longest_password_line = 1'026;  ///< a password of a manager, and the line's end

}  // namespace

result<std::vector<endpoint>> parse_addresses(std::string_view text) {
  std::vector<endpoint> addresses;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    auto address = parse_endpoint(trimmed(text.substr(begin, comma - begin)));
    if (!address) return std::unexpected(address.error());
    if (address->port == 0) return fail(error_code::invalid_argument, address->text() + ": a port is needed");
    addresses.push_back(std::move(*address));
    begin = comma + 1;
  }
  return addresses;
}

result<std::string> read_password(const std::string& path) {
  auto file = read_private_file(path, longest_password_line, S_IRWXG | S_IRWXO);
  if (!file) return std::unexpected(file.error().in("the password's file"));
  std::string password = file->text.substr(0, file->text.find_first_of("\r\n"));
  ::explicit_bzero(file->text.data(), file->text.size());
  if (password.empty()) return fail(error_code::invalid_argument, path + ": the first line has to be a password");
  return password;
}

}  // namespace cenote::manager
