#include "services/manager/storages/file_storage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cenote::manager {

namespace {

constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr std::string_view probe_text = "a manager of Cenote looks whether this storage works\n";

/// The names of a path below the root; none if one of them leads elsewhere.
std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const std::size_t end = path.find('/');
    const std::string_view name = path.substr(0, end);
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    if (name.empty() || name == "." || name == ".." || name.find('\0') != std::string_view::npos) return {};
    names.emplace_back(name);
  }
  return names;
}

bool is_absent(int error_number) noexcept {
  return error_number == ENOENT || error_number == ENOTDIR;
}

/// The folders on the way to a file, the root first.
struct opened_folders {
  std::vector<unique_fd> folders{};
  bool is_absent = false;
};

result<opened_folders> open_folders(unique_fd root, const std::vector<std::string>& names) {
  opened_folders opened;
  opened.folders.push_back(std::move(root));
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    unique_fd next(::openat(opened.folders.back().get(), names[i].c_str(), folder_flags));
    if (!next && is_absent(errno)) {
      opened.is_absent = true;
      return opened;
    }
    if (!next) return fail_errno("openat", names[i]);
    opened.folders.push_back(std::move(next));
  }
  return opened;
}

/// Frees the bytes of one block. Where a file system has no holes, they go with their file.
result<> punch(int folder, const std::string& name, const removal_item& item) {
  const unique_fd file(::openat(folder, name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file) return is_absent(errno) ? result<>() : fail_errno("openat", name);
  constexpr int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (::fallocate(file.get(), mode, static_cast<off_t>(item.offset), static_cast<off_t>(item.bytes)) == 0) return {};
  return errno == EOPNOTSUPP || errno == ENOSYS ? result<>() : fail_errno("fallocate", name);
}

bool is_full(int error_number) noexcept {
  return error_number == ENOSPC || error_number == EDQUOT;
}

/// Writes a small file and reads it back. False: there is no room for it, which hinders no reader.
result<bool> write_probe(int root, const std::string& name) {
  const unique_fd file(::openat(root, name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return is_full(errno) ? result<bool>(false) : fail_errno("openat", name);
  std::array<char, probe_text.size()> copy{};
  const ssize_t wrote = ::pwrite(file.get(), probe_text.data(), probe_text.size(), 0);
  if (wrote < 0) return is_full(errno) ? result<bool>(false) : fail_errno("pwrite", name);
  if (wrote != static_cast<ssize_t>(probe_text.size())) return false;
  if (::pread(file.get(), copy.data(), copy.size(), 0) != static_cast<ssize_t>(copy.size())) {
    return fail_errno("pread", name);
  }
  if (std::string_view(copy.data(), copy.size()) != probe_text) {
    return fail(error_code::malformed, name + " gives back other bytes than were written");
  }
  return true;
}

}  // namespace

file_storage::file_storage(std::string root, std::string probe_name)
    : root_(std::move(root)), probe_name_(std::move(probe_name)) {}

result<unique_fd> file_storage::open_root() const {
  unique_fd root(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno("open", root_);
  return root;
}

result<> file_storage::remove(const removal_item& item) {
  const auto names = names_of(item.place);
  if (names.empty()) return fail(error_code::invalid_argument, "a path leads out of the storage: " + item.place);
  auto root = open_root();
  if (!root) return std::unexpected(root.error());
  auto opened = open_folders(std::move(*root), names);
  if (!opened) return std::unexpected(opened.error());
  if (opened->is_absent) return {};
  const int folder = opened->folders.back().get();
  if (item.scope == removal_scope::part) return punch(folder, names.back(), item);
  if (::unlinkat(folder, names.back().c_str(), 0) != 0 && !is_absent(errno)) return fail_errno("unlinkat", item.place);
  for (std::size_t i = names.size() - 1; i > 0; --i) {  // folders that are empty now
    if (::unlinkat(opened->folders[i - 1].get(), names[i - 1].c_str(), AT_REMOVEDIR) != 0) break;
  }
  return {};
}

result<storage_room> file_storage::probe() {
  std::error_code made;
  std::filesystem::create_directories(root_, made);
  if (made) return fail_errno(made.value(), "mkdir", root_);
  auto root = open_root();
  if (!root) return std::unexpected(root.error());
  auto has_room = write_probe(root->get(), probe_name_);
  const bool is_left = ::unlinkat(root->get(), probe_name_.c_str(), 0) != 0 && !is_absent(errno);
  if (!has_room) return std::unexpected(has_room.error());
  if (is_left) return fail_errno("unlinkat", probe_name_);
  struct statvfs room {};
  if (::fstatvfs(root->get(), &room) != 0) return fail_errno("fstatvfs", root_);
  return storage_room{.free_bytes = *has_room ? std::uint64_t{room.f_bavail} * room.f_frsize : 0,
                      .total_bytes = std::uint64_t{room.f_blocks} * room.f_frsize};
}

}  // namespace cenote::manager
