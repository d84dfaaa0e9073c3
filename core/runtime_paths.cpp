#include "core/runtime_paths.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

namespace cenote {

namespace {

constexpr const char* system_runtime_dir = "/run/cenote";

/// Without a directory of the session's manager.
std::string user_runtime_dir() {
  const auto user = ::geteuid();
  return user == 0 ? system_runtime_dir : "/tmp/cenote-" + std::to_string(user);
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Empty: none is known.
std::string home_directory() {
  if (std::string given = variable("HOME"); !given.empty()) return given;
  std::array<char, 4096> memory{};
  passwd entry{};
  passwd* found = nullptr;
  const bool is_known =
      ::getpwuid_r(::geteuid(), &entry, memory.data(), memory.size(), &found) == 0 && found != nullptr;
  return is_known ? entry.pw_dir : "";
}

}  // namespace

result<std::string> default_state_dir() {
  if (std::string given = variable("STATE_DIRECTORY"); !given.empty()) return given;
  if (::geteuid() == 0) return "/var/lib/cenote";
  if (const std::string state = variable("XDG_STATE_HOME"); !state.empty()) return state + "/cenote";
  if (const std::string home = home_directory(); home.starts_with('/')) return home + "/.local/state/cenote";
  return fail(error_code::invalid_argument, "uid " + std::to_string(::geteuid()) + " has no home directory");
}

std::string default_runtime_dir() {
  if (const std::string given = variable("XDG_RUNTIME_DIR"); !given.empty()) return given + "/cenote";
  return user_runtime_dir();
}

namespace {

using file_status = struct stat;

/// Of a link, not of its target. Nothing: there is no file.
std::optional<file_status> status_of(const std::filesystem::path& path) {
  file_status status{};
  return ::lstat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
}

/// Root or this user.
bool has_own_user(const file_status& place) noexcept {
  return place.st_uid == 0 || place.st_uid == ::geteuid();
}

/// Of root or this user, and not writable by others.
bool is_own(const file_status& place) noexcept {
  return has_own_user(place) && (place.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

bool is_trusted_socket(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto socket = status_of(path);
  auto place = status_of(folder);
  if (place && S_ISLNK(place->st_mode) && has_own_user(*place)) {
    std::error_code failed;
    folder = std::filesystem::canonical(folder, failed);
    place = status_of(folder);
  }
  if (!socket || !place || !S_ISSOCK(socket->st_mode) || !S_ISDIR(place->st_mode)) return false;
  if (socket->st_uid != place->st_uid && socket->st_uid != 0) return false;
  if (is_own(*place)) return true;
  const auto above = status_of(folder.parent_path());
  return above && above->st_uid == 0 && is_own(*above);
}

std::string default_socket_path() {
  if (std::string given = variable("CENOTE_SOCKET"); !given.empty()) return given;
  const std::string system = socket_in(system_runtime_dir);
  const std::array places{socket_in(default_runtime_dir()), socket_in(user_runtime_dir()), system};
  const auto trusted = std::ranges::find_if(places, is_trusted_socket);
  if (trusted != places.end()) return *trusted;
  const auto absent =
      std::ranges::find_if(places, [](const std::string& each) { return ::access(each.c_str(), F_OK) != 0; });
  return absent == places.end() ? system : *absent;
}

std::string socket_in(const std::string& runtime_dir) {
  return runtime_dir + "/cenote.sock";
}

}  // namespace cenote
