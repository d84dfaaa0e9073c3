#include "tiers/nvme/path_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/checksum.hpp"
#include "core/file_lock.hpp"
#include "core/folder_check.hpp"
#include "tiers/nvme/io.hpp"

namespace cenote::nvme {

namespace {

constexpr std::array<char, 8> magic{'c', 'e', 'n', 'o', 't', 'e', 'b', 'd'};
constexpr std::string_view holder_prefix = "cenote node ";
constexpr std::string_view pid_word = " pid ";

// What the first sector starts with; the rest of it is zero. Little endian, like everything on a disk of ours.
struct superblock {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t store_id;
  std::uint64_t checksum;  // of the fields before it
};
static_assert(sizeof(superblock) == 32);

std::uint64_t check_of(const superblock& head) noexcept {
  return checksum_of(&head, offsetof(superblock, checksum));
}

struct alignas(sector_bytes) sector {
  std::array<std::byte, sector_bytes> bytes{};
};

struct holder_note {
  std::string holder;
  std::string pid;
};

std::optional<holder_note> read_holder(const std::string& directory) {
  std::ifstream file(directory + "/holder");
  std::string line;
  if (!std::getline(file, line) || !line.starts_with(holder_prefix)) return std::nullopt;
  const auto pid = line.rfind(pid_word);
  if (pid == std::string::npos || pid < holder_prefix.size()) return std::nullopt;
  return holder_note{line.substr(holder_prefix.size(), pid - holder_prefix.size()), line.substr(pid + pid_word.size())};
}

/// Where its disk is not mounted, a directory is one of the root file system, and a store would fill that.
result<void> check_mounted(const std::string& directory) {
  struct stat there {};
  struct stat root {};
  if (::stat((directory + "/data").c_str(), &there) == 0 && S_ISBLK(there.st_mode)) return {};
  const auto part = existing_part(directory);
  if (!part) return std::unexpected(part.error());
  if (::stat(part->c_str(), &there) != 0) return fail_errno("stat", part->native());
  if (::stat("/", &root) != 0) return fail_errno("stat", "/");
  if (there.st_dev != root.st_dev) return {};
  return fail(error_code::invalid_config,
              directory +
                  " lies on the root file system, and nvme.require_mount wants another one: "
                  "mount its disk, or set nvme.require_mount = false");
}

/// Who may write to the directory could put files of their own in the place of ours.
result<void> check_owner(const std::string& directory) {
  struct stat about {};
  if (::stat(directory.c_str(), &about) != 0) return fail_errno("stat", directory);
  const uid_t own = ::geteuid();
  if (about.st_uid != own && about.st_uid != 0) {
    return fail(error_code::invalid_config, directory + " belongs to uid " + std::to_string(about.st_uid) +
                                                ", who could replace its files: it must belong to uid " +
                                                std::to_string(own) + ", which runs the node, or to root");
  }
  if ((about.st_mode & S_IWOTH) != 0) {
    return fail(error_code::invalid_config, directory +
                                                " may be written to by everybody, who could replace its files: take "
                                                "that away (chmod o-w), or use a directory inside it");
  }
  return {};
}

/// Opening would make a file in the place of a device that is missing.
result<void> check_link(const std::string& data) {
  std::error_code failed;
  const auto target = std::filesystem::read_symlink(data, failed);
  if (failed || std::filesystem::exists(data, failed)) return {};
  return fail(error_code::invalid_config, data + " is a link to " + target.native() + ", which is not there");
}

result<void> make_directory(const std::string& directory) {
  const auto parent = std::filesystem::path(directory).parent_path();
  std::error_code failed;
  if (!parent.empty()) std::filesystem::create_directories(parent, failed);
  if (failed) return fail(error_code::system, "create " + parent.native() + ": " + failed.message());
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("mkdir", directory);
  return {};
}

/// Of the data file: whole sectors, and more than a superblock and a log.
result<std::uint64_t> data_size_of(const path_options& options) {
  const std::uint64_t bytes = options.bytes / sector_bytes * sector_bytes;
  if (bytes > path_file::data_offset) return bytes;
  return fail(error_code::invalid_argument,
              options.directory + ": a path needs more than " + std::to_string(path_file::data_offset) + " bytes");
}

/// Before open(), which has effects on a terminal or a watchdog.
result<void> check_kind(const std::string& data) {
  struct stat facts {};
  if (::stat(data.c_str(), &facts) != 0 || S_ISBLK(facts.st_mode) || S_ISREG(facts.st_mode)) return {};
  return fail(error_code::invalid_config, data + " is neither a file nor a block device");
}

/// `place`: in the file system that the file is in, or will be.
result<path_need> need_at(const std::string& place, std::uint64_t bytes) {
  struct stat facts {};
  struct statvfs space {};
  if (::stat(place.c_str(), &facts) != 0) return fail_errno("stat", place);
  if (::statvfs(place.c_str(), &space) != 0) return fail_errno("statvfs", place);
  return path_need{facts.st_dev, bytes, std::uint64_t{space.f_bavail} * space.f_frsize};
}

std::unexpected<error> too_full(const std::string& data, const path_need& need) {
  return fail(error_code::no_space, data + ": " + std::to_string(need.bytes) + " bytes needed, " +
                                        std::to_string(need.available) + " available in the file system");
}

std::unexpected<error> too_full(const std::string& data, std::uint64_t bytes) {
  const auto need = need_at(data, bytes);
  return need ? too_full(data, *need) : std::unexpected(need.error());
}

/// A need that its file system can meet.
result<path_need> checked_need(const std::string& data, const result<path_need>& need) {
  return need && need->bytes > need->available ? too_full(data, *need) : need;
}

bool is_no_space(int error) noexcept {
  return error == ENOSPC || error == EDQUOT;
}

/// Puts `text` in the place of what the file holds; 0, or errno.
int rewrite(const std::string& file, const std::string& text) {
  const unique_fd to(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!to) return errno;
  const auto put = ::pwrite(to.get(), text.data(), text.size(), 0);
  if (put != static_cast<ssize_t>(text.size())) return put < 0 ? errno : ENOSPC;
  return ::ftruncate(to.get(), static_cast<off_t>(text.size())) == 0 ? 0 : errno;
}

result<std::uint64_t> new_store_id() {
  std::uint64_t id = 0;
  while (id == 0) {
    const auto got = ::getrandom(&id, sizeof id, 0);
    if (got != sizeof id && errno != EINTR) return fail_errno("getrandom");
    if (got != sizeof id) id = 0;
  }
  return id;
}

}  // namespace

result<path_file> path_file::open(const path_options& options) {
  const auto wanted = data_size_of(options);
  if (!wanted) return std::unexpected(wanted.error());
  if (options.require_mount) {
    if (auto mounted = check_mounted(options.directory); !mounted) return std::unexpected(mounted.error());
  }
  if (auto made = make_directory(options.directory); !made) return std::unexpected(made.error());
  if (auto ours = check_owner(options.directory); !ours) return std::unexpected(ours.error());
  path_file out;
  out.directory_ = options.directory;
  if (auto there = check_link(out.data_path()); !there) return std::unexpected(there.error());
  if (auto ok = out.open_data(O_RDWR | O_CREAT); !ok) return std::unexpected(ok.error());
  if (auto ok = out.lock(options, LOCK_EX); !ok) return std::unexpected(ok.error());
  if (auto ok = out.write_holder(options.holder); !ok) return std::unexpected(ok.error());
  if (auto ok = out.read_superblock(); !ok) return std::unexpected(ok.error());
  if (out.is_new_) {
    if (auto ok = out.write_superblock(); !ok) return std::unexpected(ok.error());
  }
  if (auto ok = out.resize(*wanted); !ok) return std::unexpected(ok.error());
  return out;
}

result<path_need> path_file::check(const path_options& options) {
  const auto bytes = data_size_of(options);
  if (!bytes) return std::unexpected(bytes.error());
  if (auto mounted = options.require_mount ? check_mounted(options.directory) : result<void>(); !mounted)
    return std::unexpected(mounted.error());
  const auto part = existing_part(options.directory);
  if (!part) return std::unexpected(part.error());
  const bool is_new = *part != std::filesystem::path(options.directory);
  if (auto ours = is_new ? result<void>() : check_owner(options.directory); !ours) return std::unexpected(ours.error());
  const auto writable = check_folder(options.directory);
  // A full disk is no reason to stay away from a file that has its size.
  if (!writable && (is_new || writable.error().code() != error_code::no_space))
    return std::unexpected(writable.error());
  path_file out;
  out.directory_ = options.directory;
  if (auto linked = check_link(out.data_path()); !linked) return std::unexpected(linked.error());
  if (::access(out.data_path().c_str(), F_OK) != 0) return checked_need(out.data_path(), need_at(*part, *bytes));
  return out.check_data(options.holder, *bytes);
}

/// Of a data file that is there.
result<path_need> path_file::check_data(const std::string& holder, std::uint64_t bytes) {
  if (auto opened = open_data(O_RDWR); !opened) return std::unexpected(opened.error());
  if (auto known = read_superblock(); !known) return std::unexpected(known.error());
  const auto need = need_of(bytes);
  if (!need) return need;
  if (auto usable = check_metadata(); !usable) return std::unexpected(usable.error());
  const auto locked = lock({.directory = directory_, .bytes = 0, .holder = holder, .patience = {}}, LOCK_SH);
  if (locked) return need;
  const bool is_in_use = locked.error().code() == error_code::invalid_config;
  return is_in_use ? fail(error_code::deadline_exceeded, locked.error().message()) : std::unexpected(locked.error());
}

result<path_file> path_file::open_read_only(const std::string& directory) {
  path_file out;
  out.directory_ = directory;
  struct stat about {};
  // Asked before: to open a pipe would wait for its other end.
  if (::stat(out.data_path().c_str(), &about) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return fail_errno("stat", out.data_path());
    return fail(error_code::invalid_argument, directory + " holds no store: there is no " + out.data_path());
  }
  if (S_ISFIFO(about.st_mode)) return fail(error_code::invalid_argument, out.data_path() + " is a pipe");
  if (auto ok = out.open_data(O_RDONLY); !ok) return std::unexpected(ok.error());
  // Nobody is called "": whoever has the path, it is somebody else.
  const path_options nobody{.directory = directory, .bytes = 0, .holder = {}, .patience = {}};
  if (auto ok = out.lock(nobody, LOCK_SH); !ok) return std::unexpected(ok.error());
  if (auto ok = out.read_superblock(); !ok) return std::unexpected(ok.error());
  if (out.is_new_) return fail(error_code::invalid_argument, directory + " holds no store: its data file is blank");
  const auto there = out.size_there();
  if (!there) return std::unexpected(there.error());
  out.bytes_ = *there / sector_bytes * sector_bytes;
  return out;
}

result<void> path_file::open_data(int flags) {
  const auto path = data_path();
  if (auto usable = check_kind(path); !usable) return usable;
  flags |= O_CLOEXEC | O_NOCTTY;
  file_.reset(::open(path.c_str(), flags | O_DIRECT, 0600));
  direct_ = static_cast<bool>(file_);
  if (!file_ && errno == EINVAL) file_.reset(::open(path.c_str(), flags, 0600));
  if (!file_) return fail_errno("open", path);
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return fail_errno("fstat", path);
  is_device_ = S_ISBLK(about.st_mode);
  if (!is_device_ && !S_ISREG(about.st_mode)) {
    return fail(error_code::invalid_config, path + " is neither a file nor a block device");
  }
  return {};
}

result<void> path_file::lock(const path_options& options, int mode) const {
  // Read again each time: the note may be that of an earlier holder while the present one writes its own.
  const auto check_holder = [&]() -> result<void> {
    const auto held = read_holder(directory_);
    if (!held || held->holder == options.holder) return {};
    return fail(error_code::invalid_config,
                directory_ + " is in use by the node " + held->holder + " (pid " + held->pid + ")");
  };
  const auto locked = lock_file(file_.get(), mode, data_path(), options.patience, check_holder);
  if (!locked) return std::unexpected(locked.error());
  if (!*locked) {
    const auto held = read_holder(directory_);
    return fail(error_code::deadline_exceeded, directory_ + " is still in use by " +
                                                   (held ? "pid " + held->pid + " of this node" : "another process") +
                                                   " or by its last requests");
  }
  return {};
}

result<void> path_file::write_holder(const std::string& holder) const {
  const auto path = directory_ + "/holder";
  const auto fresh = path + ".new";
  std::string line(holder_prefix);
  line.append(holder).append(pid_word).append(std::to_string(::getpid())).append("\n");
  int failed = rewrite(fresh, line);
  if (failed == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  ::unlink(fresh.c_str());
  if (!is_no_space(failed)) return fail_errno(failed, "write", path);
  // A full disk is no reason to stay away. The note of before has room for ours; it may be missing, but not a lie.
  if (rewrite(path, line) != 0) ::unlink(path.c_str());
  return {};
}

result<void> path_file::read_superblock() {
  const auto first = std::make_unique<sector>();
  const auto got = ::pread(file_.get(), first->bytes.data(), first->bytes.size(), 0);
  if (got < 0) return fail_errno("pread", data_path());
  superblock head{};
  std::memcpy(&head, first->bytes.data(), sizeof head);
  // Also all zeroes: a crash came between the file's size and its contents.
  if (std::ranges::all_of(first->bytes, [](std::byte b) { return b == std::byte{0}; })) {
    is_new_ = true;
    return {};
  }
  if (head.magic != magic) {
    return fail(error_code::layout_mismatch, data_path() + " holds something else than blocks of this cache");
  }
  if (head.version != format_version) {
    return fail(error_code::layout_mismatch, data_path() + " has format version " + std::to_string(head.version) +
                                                 ", this program knows " + std::to_string(format_version) +
                                                 "; remove the file to start anew");
  }
  if (head.checksum != check_of(head) || head.store_id == 0) {
    return fail(error_code::layout_mismatch, data_path() + " has a damaged superblock; remove the file to start anew");
  }
  store_id_ = head.store_id;
  return {};
}

result<void> path_file::write_superblock() {
  auto id = new_store_id();
  if (!id) return std::unexpected(id.error());
  store_id_ = *id;
  superblock head{.magic = magic, .version = format_version, .reserved = 0, .store_id = store_id_, .checksum = 0};
  head.checksum = check_of(head);
  const auto first = std::make_unique<sector>();
  std::memcpy(first->bytes.data(), &head, sizeof head);
  const auto put = ::pwrite(file_.get(), first->bytes.data(), first->bytes.size(), 0);
  if (put < 0 && errno == ENOSPC) return too_full(data_path(), sector_bytes);
  if (put < 0) return fail_errno("pwrite", data_path());
  if (put != static_cast<ssize_t>(sector_bytes)) return fail_errno(EIO, "pwrite", data_path());
  if (::fdatasync(file_.get()) != 0) return fail_errno("fdatasync", data_path());
  return {};
}

result<std::uint64_t> path_file::size_there() const {
  std::uint64_t there = 0;
  if (is_device_) {
    if (::ioctl(file_.get(), BLKGETSIZE64, &there) != 0) return fail_errno("BLKGETSIZE64", data_path());
    return there;
  }
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return fail_errno("fstat", data_path());
  return static_cast<std::uint64_t>(about.st_size);
}

/// Refuses what the device, or the file and its file system together, have no room for.
result<path_need> path_file::need_of(std::uint64_t bytes) const {
  if (is_device_) {
    const auto size = size_there();
    if (!size) return std::unexpected(size.error());
    if (*size >= bytes) return path_need();
    return fail(error_code::no_space,
                data_path() + ": " + std::to_string(bytes) + " bytes needed, the device has " + std::to_string(*size));
  }
  struct stat facts {};
  if (::fstat(file_.get(), &facts) != 0) return fail_errno("fstat", data_path());
  const bool has_size = static_cast<std::uint64_t>(facts.st_size) >= bytes;
  // Reserved once, as its size says: what the disk has no room for any more is found out by the writes.
  if (has_size && !is_new_) return path_need();
  const std::uint64_t taken = static_cast<std::uint64_t>(facts.st_blocks) * 512;
  return checked_need(data_path(), need_at(data_path(), bytes - std::min(bytes, taken)));
}

/// The database's folder, where there is one.
result<void> path_file::check_metadata() const {
  const auto place = directory_ + "/metadata";
  struct stat facts {};
  if (::stat(place.c_str(), &facts) != 0) return errno == ENOENT ? result<void>() : fail_errno("stat", place);
  if (!S_ISDIR(facts.st_mode)) return fail_errno(ENOTDIR, "open", place);
  const auto writable = check_folder(place);
  return !writable && writable.error().code() == error_code::no_space ? result<void>() : writable;
}

result<void> path_file::resize(std::uint64_t wanted) {
  bytes_ = wanted;
  if (is_device_) {
    const auto fits = need_of(wanted);
    return fits ? result<void>() : std::unexpected(fits.error());
  }
  // It may hold a cache of anybody's conversations.
  if (::fchmod(file_.get(), 0600) != 0) return fail_errno("fchmod", data_path());
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return fail_errno("fstat", data_path());
  const auto length = static_cast<off_t>(wanted);
  if (about.st_size > length && ::ftruncate(file_.get(), length) != 0) return fail_errno("ftruncate", data_path());
  if (::fstat(file_.get(), &about) != 0) return fail_errno("fstat", data_path());
  if (about.st_size == length && static_cast<std::uint64_t>(about.st_blocks) * 512 >= wanted) return {};
  // Asked before: fallocate would first take all that is left from everybody else.
  if (const auto fits = need_of(wanted); !fits) return std::unexpected(fits.error());
  if (auto allocated = allocate(wanted); !allocated) {
    // The space taken so far goes back; what was in the file stays.
    if (::ftruncate(file_.get(), about.st_size) != 0) return fail_errno("ftruncate", data_path());
    const bool was_reserved = about.st_size == length && !is_new_;
    if (!was_reserved || allocated.error().code() != error_code::no_space) return allocated;
  }
  return {};
}

result<void> path_file::allocate(std::uint64_t wanted) const {
  const auto length = static_cast<off_t>(wanted);
  int failed = 0;
  do {
    failed = ::fallocate(file_.get(), 0, 0, length) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == EOPNOTSUPP) failed = ::ftruncate(file_.get(), length) == 0 ? 0 : errno;
  if (is_no_space(failed) || failed == EFBIG) return too_full(data_path(), wanted);
  if (failed != 0) return fail_errno(failed, "fallocate", data_path());
  return {};
}

}  // namespace cenote::nvme
