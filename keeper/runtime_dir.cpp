#include "keeper/runtime_dir.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/folder_check.hpp"

namespace cenote {

namespace {

unique_fd open_lock_with(const std::string& path, int flags) {
  return unique_fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
}

/// Of a link, not of what it leads to.
result<void> check_owner(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return fail_errno("stat", path);
  if (info.st_uid == ::geteuid() || info.st_uid == 0) return {};
  return fail(error_code::permission_denied, fmt::format("{} belongs to uid {}, not to uid {}; remove it or choose "
                                                         "another node.runtime_dir",
                                                         path, info.st_uid, ::geteuid()));
}

}  // namespace

result<void> make_runtime_dir(const std::string& path) {
  std::error_code why;
  if (std::filesystem::create_directories(path, why) && ::chmod(path.c_str(), 0755) != 0) {
    return fail_errno("chmod", path);
  }
  if (why) return fail_errno(why.value(), "mkdir", path);
  return check_owner(path);
}

std::string lock_file_in(const std::string& runtime_dir) {
  return runtime_dir + "/cenote.lock";
}

unique_fd open_lock(const std::string& path) {
  return open_lock_with(path, O_CREAT);
}

result<void> check_runtime_dir(const std::string& path) {
  struct stat info {};
  const bool is_new = ::lstat(path.c_str(), &info) != 0 && errno == ENOENT;
  if (auto ours = is_new ? result<void>() : check_owner(path); !ours) return ours;
  if (auto usable = check_folder(path); !usable) return usable;
  const std::string lock = lock_file_in(path);
  const unique_fd opened = open_lock_with(lock, O_NONBLOCK);
  return opened || errno == ENOENT ? result<void>() : fail_errno("open", lock);
}

}  // namespace cenote
