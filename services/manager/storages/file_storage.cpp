#include "services/manager/storages/file_storage.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/unique_fd.hpp"

namespace cenote::manager {

namespace {

constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int reading_flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
constexpr std::size_t files_at_once = 512;  ///< so that the storage is seen to answer in between
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

result<unique_fd> open_root(const std::string& path) {
  unique_fd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno("open", path);
  return root;
}

/// A path in a storage, and the folders on its way, the root first.
struct opened_place {
  std::vector<std::string> names{};
  std::vector<unique_fd> folders{};
  bool is_absent = false;
};

result<opened_place> open_place(const std::string& root_path, const std::string& place) {
  opened_place opened{.names = names_of(place)};
  if (opened.names.empty()) return fail(error_code::invalid_argument, "a path leads out of the storage: " + place);
  auto root = open_root(root_path);
  if (!root) return std::unexpected(root.error());
  opened.folders.push_back(std::move(*root));
  for (std::size_t i = 0; i + 1 < opened.names.size(); ++i) {
    unique_fd next(::openat(opened.folders.back().get(), opened.names[i].c_str(), folder_flags));
    if (!next && is_absent(errno)) {
      opened.is_absent = true;
      return opened;
    }
    if (!next) return fail_errno("openat", opened.names[i]);
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

/// Whether a file has bytes in the range of a block, and reaches to its end. A block that was punched has none, but for
/// the parts of a file system's blocks at its edges, and where the file system shows no holes.
result<bool> has_bytes(int file, const removal_item& item) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return fail_errno("fstat", item.place);
  const std::uint64_t end = item.offset + item.bytes;
  if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) < end) return false;
  if (item.bytes == 0) return true;
  const off_t data = ::lseek(file, static_cast<off_t>(item.offset), SEEK_DATA);
  if (data < 0 && errno == ENXIO) return false;
  if (data < 0) return errno == EINVAL || errno == EOPNOTSUPP ? result<bool>(true) : fail_errno("lseek", item.place);
  return static_cast<std::uint64_t>(data) < end;
}

/// Removes the folders that are empty now, from the `depth`-th name up.
void remove_empty(const opened_place& opened, std::size_t depth) {
  for (std::size_t i = depth; i > 0; --i) {
    if (::unlinkat(opened.folders[i - 1].get(), opened.names[i - 1].c_str(), AT_REMOVEDIR) != 0) break;
  }
}

struct folder_closer {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

/// Names of what is in a folder but folders, up to files_at_once.
result<std::vector<std::string>> list_files(DIR* folder, const std::string& place) {
  std::vector<std::string> names;
  while (names.size() < files_at_once) {
    errno = 0;
    const dirent* const entry = ::readdir(folder);
    if (entry == nullptr && errno != 0) return fail_errno("readdir", place);
    if (entry == nullptr) break;
    const std::string_view name(entry->d_name);
    if (entry->d_type != DT_DIR && name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

bool is_folder(int folder, const std::string& name) {
  struct stat status {};
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

/// Deletes up to files_at_once files; each is tried. True: there may be more.
result<bool> remove_files(unique_fd folder, const std::string& place) {
  const std::unique_ptr<DIR, folder_closer> list(::fdopendir(folder.get()));
  if (list == nullptr) return fail_errno("fdopendir", place);
  const int number = folder.release();
  const auto names = list_files(list.get(), place);
  if (!names) return std::unexpected(names.error());
  std::size_t count = 0;
  result<bool> outcome = false;
  for (const std::string& name : *names) {
    if (::unlinkat(number, name.c_str(), 0) == 0) {
      ++count;
    } else if (const int reason = errno; !is_absent(reason) && !is_folder(number, name)) {
      outcome = fail_errno(reason, "unlinkat", place + "/" + name);
    }
  }
  if (outcome) outcome = count != 0 && names->size() == files_at_once;
  return outcome;
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

result<> file_storage::remove(const removal_item& item) {
  auto opened = open_place(root_, item.place);
  if (!opened) return std::unexpected(opened.error());
  if (opened->is_absent) return {};
  const int folder = opened->folders.back().get();
  if (item.scope == removal_scope::part) return punch(folder, opened->names.back(), item);
  if (::unlinkat(folder, opened->names.back().c_str(), 0) != 0 && !is_absent(errno))
    return fail_errno("unlinkat", item.place);
  remove_empty(*opened, opened->names.size() - 1);
  return {};
}

result<bool> file_storage::remove_some(const std::string& folder) {
  auto opened = open_place(root_, folder);
  if (!opened) return std::unexpected(opened.error());
  if (opened->is_absent) return false;
  unique_fd last(::openat(opened->folders.back().get(), opened->names.back().c_str(), folder_flags));
  if (!last) return is_absent(errno) ? result<bool>(false) : fail_errno("openat", folder);
  const auto has_more = remove_files(std::move(last), folder);
  if (has_more && !*has_more) remove_empty(*opened, opened->names.size());
  return has_more;
}

result<bool> file_storage::exists(const removal_item& item) const {
  auto opened = open_place(root_, item.place);
  if (!opened) return std::unexpected(opened.error());
  if (opened->is_absent) return false;
  const unique_fd file(::openat(opened->folders.back().get(), opened->names.back().c_str(), reading_flags));
  if (!file) return is_absent(errno) ? result<bool>(false) : fail_errno("openat", item.place);
  return has_bytes(file.get(), item);
}

std::vector<result<bool>> file_storage::exist_together(std::span<const removal_item> items) {
  std::vector<result<bool>> found;
  found.reserve(items.size());
  for (const removal_item& item : items) found.push_back(exists(item));
  return found;
}

result<storage_room> file_storage::probe() {
  std::error_code made;
  std::filesystem::create_directories(root_, made);
  if (made) return fail_errno(made.value(), "mkdir", root_);
  auto root = open_root(root_);
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
