// One path of the NVMe tier: a directory with the file that holds the blocks, and who uses it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::nvme {

struct path_options {
  std::string directory;
  std::uint64_t bytes = 0;               ///< of the data file, rounded down to whole sectors
  std::string holder;                    ///< name of this node: the same in each of its processes
  std::chrono::milliseconds patience{};  ///< for the last requests of an earlier process of this node
  bool require_mount = false;            ///< the directory must not lie on the file system of `/`
};

/// The share of a file system that a path still takes.
struct path_need {
  dev_t file_system = 0;        ///< 0: none, it is a device
  std::uint64_t bytes = 0;      ///< that are not reserved yet
  std::uint64_t available = 0;  ///< in the file system, to all paths
};

/// An open path: DIRECTORY/data under an exclusive lock, and DIRECTORY/holder that says whose it is.
///
///     0            4 KiB                data_offset (1 MiB)             bytes
///     | superblock | log of removals ... | blocks ...................... |
///
/// The lock belongs to the open file description, and the kernel ends it with the description's last request: who gets
/// it knows that no transfer of an earlier process is under way. Hence the descriptor is never duplicated, sent or
/// inherited. `data` may be a link to a block device. Not thread-safe; the descriptor may be used from any thread.
class path_file {
 public:
  static constexpr std::uint64_t data_offset = std::uint64_t{1} << 20;  ///< where blocks start
  static constexpr std::uint64_t log_offset = 4096;                     ///< where a removal_log lies
  static constexpr std::uint64_t mark_offset = data_offset - 4096;      ///< where a sequence_mark lies
  static constexpr std::uint32_t format_version = 1;

  /// Makes the directory and file if need be, locks the file, and brings it to its size. Blocks for up to `patience`.
  /// Errors: invalid_argument (too small), invalid_config (another node holds it, no file, no disk where one is
  /// required, others may replace the files), deadline_exceeded (a process of this node still holds it),
  /// layout_mismatch (not a file of ours or of this version; it is left as it is), no_space (with the bytes needed and
  /// available; a file that has its size already is taken as it is), system.
  [[nodiscard]] static result<path_file> open(const path_options& options);
  /// Whether open() would do, as far as that shows without a change that lasts: what it would make is not made. Errors:
  /// as open(); deadline_exceeded: a process has the path open, and the message names it.
  [[nodiscard]] static result<path_need> check(const path_options& options);
  /// To look at what a node has left: makes and changes nothing, and never waits. The lock is a shared one, so no node
  /// begins to use the path meanwhile. Errors: invalid_argument (no store is there), invalid_config or
  /// deadline_exceeded (a process has it open; the message names it), layout_mismatch, system.
  [[nodiscard]] static result<path_file> open_read_only(const std::string& directory);

  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// Whether transfers go past the page cache.
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  /// The file's size, a multiple of a sector; with the first `data_offset` bytes.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  /// Random, given once to each new file, never 0: what else is kept about the blocks must name it.
  [[nodiscard]] std::uint64_t store_id() const noexcept { return store_id_; }
  /// No block can be in it: the superblock was written by this open().
  [[nodiscard]] bool is_new() const noexcept { return is_new_; }

 private:
  path_file() = default;

  [[nodiscard]] result<void> open_data(int flags);
  [[nodiscard]] result<void> lock(const path_options& options, int mode) const;
  [[nodiscard]] result<void> write_holder(const std::string& holder) const;
  [[nodiscard]] result<void> read_superblock();
  [[nodiscard]] result<void> write_superblock();
  [[nodiscard]] result<std::uint64_t> size_there() const;
  [[nodiscard]] result<void> resize(std::uint64_t wanted);
  [[nodiscard]] result<path_need> check_data(const std::string& holder, std::uint64_t bytes);
  [[nodiscard]] result<path_need> need_of(std::uint64_t bytes) const;
  [[nodiscard]] result<void> check_metadata() const;
  [[nodiscard]] result<void> allocate(std::uint64_t wanted) const;
  [[nodiscard]] std::string data_path() const { return directory_ + "/data"; }

  std::string directory_;
  unique_fd file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t store_id_ = 0;
  bool direct_ = false;
  bool is_device_ = false;
  bool is_new_ = false;
};

}  // namespace cenote::nvme
