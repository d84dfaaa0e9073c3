// Parses redis:// and unix:// addresses, and reads the file that has a password.
#include "transport/redis/server_url.hpp"

#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/private_file.hpp"

namespace cenote::redis {

namespace {

constexpr std::uint16_t default_redis_port = 6379;
constexpr std::uint32_t most_databases = 65536;
constexpr std::size_t most_prefix_bytes = 64;
constexpr std::size_t most_name_bytes = 253;
constexpr std::size_t most_credentials_bytes = 4096;

std::unexpected<error> wrong_url(std::string_view complaint) {
  return fail(error_code::invalid_argument,
              std::string(complaint) +
                  "; an address is redis://[user@]host[:port][,host2[:port2]...][/db][?prefix=...], the same with "
                  "rediss:// and [ca=FILE&cert=FILE&key=FILE&name=HOST] for TLS, or "
                  "unix:///path[?db=...&prefix=...]");
}

std::optional<std::uint32_t> database_in(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || number >= most_databases) return std::nullopt;
  return number;
}

bool is_prefix(std::string_view text) {
  return !text.empty() && text.size() <= most_prefix_bytes && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-' || c == ':';
  });
}

/// Cuts what stands behind the first `mark` off `text`, and gives it.
std::optional<std::string_view> cut_behind(std::string_view& text, char mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const auto behind = text.substr(at + 1);
  text = text.substr(0, at);
  return behind;
}

bool is_secured_option(std::string_view option) {
  return option == "ca" || option == "cert" || option == "key" || option == "name";
}

bool is_host(std::string_view text) {
  return !text.empty() && text.size() <= most_name_bytes && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-' || c == ':';
  });
}

result<void> take_secured_option(server_url& url, std::string_view option, std::string_view value) {
  if (!url.tls) return wrong_url("ca, cert, key and name are for TLS, rediss://");
  if (option == "name") {
    if (!is_host(value)) return wrong_url("the name of a certificate is a host or an address");
    url.tls->name = value;
    return {};
  }
  if (!value.starts_with('/') || value.find('\0') != std::string_view::npos) {
    return wrong_url("ca, cert and key are absolute paths");
  }
  auto& files = url.tls->files;
  (option == "ca" ? files.authority : option == "cert" ? files.certificate : files.key) = value;
  return {};
}

result<void> take_option(server_url& url, std::string_view option) {
  const auto value = cut_behind(option, '=');
  if (option == "prefix" && value) {
    if (!is_prefix(*value)) return wrong_url("a prefix has 1 to 64 letters, digits and . _ - :");
    url.prefix = *value;
  } else if (option == "db" && value) {
    const auto number = database_in(*value);
    if (!number) return wrong_url("a database is a number below 65536");
    url.database = *number;
  } else if (option == "user" && value) {
    url.user = *value;
  } else if (value && is_secured_option(option)) {
    return take_secured_option(url, option, *value);
  } else {
    return wrong_url("there are the options prefix, db and user, and with TLS ca, cert, key and name");
  }
  return {};
}

result<void> take_options(server_url& url, std::string_view options) {
  while (!options.empty()) {
    const auto rest = cut_behind(options, '&');
    if (auto taken = take_option(url, options); !taken) return taken;
    options = rest.value_or(std::string_view());
  }
  return {};
}

result<void> take_hosts(server_url& url, std::string_view hosts) {
  while (true) {
    const auto rest = cut_behind(hosts, ',');
    const bool has_port =
        hosts.find(':', hosts.rfind(']') == std::string_view::npos ? 0 : hosts.rfind(']')) != std::string_view::npos;
    auto where =
        parse_endpoint(has_port ? std::string(hosts) : std::string(hosts) + ":" + std::to_string(default_redis_port));
    if (!where) return std::unexpected(where.error().in("the address of a Redis server"));
    if (where->host.empty() || where->port == 0) return wrong_url("a server has a host, and a port that is not 0");
    server_address server{.path = {}, .place = std::move(*where)};
    if (std::ranges::find(url.servers, server) != url.servers.end()) return wrong_url("a server is named twice");
    url.servers.push_back(std::move(server));
    if (url.servers.size() > most_servers) return wrong_url("there are at most 16 servers in an address");
    if (!rest) return {};
    hosts = *rest;
  }
}

result<server_url> parse_network(std::string_view rest, bool has_tls) {
  server_url url;
  if (has_tls) url.tls.emplace();
  const auto options = cut_behind(rest, '?');
  const auto database = cut_behind(rest, '/');
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    url.user = rest.substr(0, at);
    rest = rest.substr(at + 1);
    if (url.user.find(':') != std::string::npos) {
      return wrong_url("a password does not belong into an address, which is shown: write it into a file");
    }
  }
  if (auto taken = take_hosts(url, rest); !taken) return std::unexpected(taken.error());
  if (database && !database->empty()) {
    const auto number = database_in(*database);
    if (!number) return wrong_url("a database is a number below 65536");
    url.database = *number;
  }
  if (auto taken = take_options(url, options.value_or("")); !taken) return std::unexpected(taken.error());
  if (url.tls && url.tls->files.certificate.empty() != url.tls->files.key.empty()) {
    return wrong_url("a client's certificate needs its key, and a key its certificate: cert=FILE&key=FILE");
  }
  return url;
}

result<server_url> parse_local(std::string_view rest) {
  server_url url;
  const auto options = cut_behind(rest, '?');
  if (rest.size() < 2 || rest.front() != '/') return wrong_url("the path of a socket begins with /");
  if (rest.size() >= sizeof(sockaddr_un::sun_path)) return wrong_url("the path of a socket has at most 107 bytes");
  if (rest.find('\0') != std::string_view::npos) return wrong_url("the path of a socket has no zero bytes");
  url.servers.push_back({.path = std::string(rest), .place = {}});
  if (auto taken = take_options(url, options.value_or("")); !taken) return std::unexpected(taken.error());
  return url;
}

}  // namespace

std::optional<socket_addresses> fixed_addresses(const server_address& server) {
  if (!server.path.empty()) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    server.path.copy(static_cast<char*>(local.sun_path), sizeof(local.sun_path) - 1);
    return socket_addresses{socket_address::of(local)};
  }
  if (const auto number = numeric_address(server.place)) return socket_addresses{*number};
  return std::nullopt;
}

std::string server_url::name() const {
  const bool is_local = !servers.empty() && !servers.front().path.empty();
  std::string text = is_local ? "unix://" : tls ? "rediss://" : "redis://";
  for (std::size_t i = 0; i < servers.size(); ++i) text += (i == 0 ? "" : ",") + servers[i].text();
  if (database != 0) text += (is_local ? "?db=" : "/") + std::to_string(database);
  if (prefix != server_url().prefix) text += (is_local && database != 0 ? "&prefix=" : "?prefix=") + prefix;
  return text;
}

result<server_url> parse_server_url(std::string_view text) {
  struct scheme {
    std::string_view begin;
    bool has_tls;
  };
  constexpr std::array networks{scheme{"redis://", false}, scheme{"valkey://", false}, scheme{"rediss://", true},
                                scheme{"valkeys://", true}};
  for (const scheme& each : networks) {
    if (text.starts_with(each.begin)) return parse_network(text.substr(each.begin.size()), each.has_tls);
  }
  constexpr std::string_view local = "unix://";
  if (text.starts_with(local)) return parse_local(text.substr(local.size()));
  if (text.substr(0, text.find("://")).contains("sentinel")) {
    return wrong_url(
        "Sentinel is not asked: name a host that follows the primary, which is looked up at each connection; a replica "
        "there is refused");
  }
  return wrong_url("not the address of a Redis server");
}

result<server_credentials> read_credentials(const std::filesystem::path& file, const std::string& user) {
  const auto what = "the file with a server's password, " + file.native();
  const auto read = read_private_file(file, most_credentials_bytes, S_IRWXO | S_IWGRP);
  if (!read) return std::unexpected(read.error().in("the file with a server's password"));
  std::string_view line = read->text;
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty() || line.size() > most_credentials_bytes || line.find('\n') != std::string_view::npos) {
    return fail(error_code::invalid_argument, what + ": must be one line, `password` or `user:password`");
  }
  server_credentials found{.user = user, .password = {}};
  if (const auto colon = line.find(':'); user.empty() && colon != std::string_view::npos) {
    found.user = line.substr(0, colon);
    line.remove_prefix(colon + 1);
  }
  found.password = line;
  return found;
}

}  // namespace cenote::redis
