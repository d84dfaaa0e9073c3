// The paths of the NVMe tier as they are on this machine: files, engines, catalogs, and the threads that wait for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "memory/segment.hpp"
#include "tiers/nvme/catalog_writer.hpp"
#include "tiers/nvme/make_engine.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/removal_set.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote::nvme {

struct device_options {
  std::vector<std::string> directories;
  std::uint64_t capacity = 0;  ///< bytes on all of them, metadata included
  std::string holder;          ///< who this node is
  engine_kind engine = engine_kind::automatic;
  unsigned queue_depth = 32;
  bool require_mount = false;  ///< as path_options
  bool keeps_keys = false;     ///< opened_path::keys are read
  /// For each directory memory that outlives the process (pending_removals::kept_bytes), or nothing.
  std::vector<memory::segment> kept;
};

/// A path's name as a number.
[[nodiscard]] std::uint64_t path_identity(const std::string& directory) noexcept;

/// How a path's share of the capacity is spent.
struct path_budget {
  std::uint64_t data_bytes = 0;      ///< of the data file
  std::uint64_t metadata_bytes = 0;  ///< most of the catalog
  std::uint64_t max_blocks = 0;      ///< so that the catalog stays below
};
[[nodiscard]] path_budget budget_of(std::uint64_t path_bytes) noexcept;

/// A path that is open, or why it is not.
struct opened_path {
  std::uint32_t path = 0;
  result<void> status;
  std::string directory;
  std::uint64_t end = 0;  ///< of the data file; blocks start at path_file::data_offset
  path_budget budget;
  bool drained = false;                   ///< no request of an earlier process is under way: the lock is ours
  bool full = false;                      ///< it did not open since the disk is full: no fault of whoever set it up
  bool direct = false;                    ///< transfers go past the page cache
  bool metadata_waits = false;            ///< for space on the disk, and cannot be written until then
  std::string engine;                     ///< how it talks to the device
  std::string no_uring;                   ///< why io_uring is not used although it is wanted; empty: it is, or is not
  std::string set_aside;                  ///< why the metadata that was there could not be used; empty: it could
  std::vector<adopted_block> blocks;      ///< what it holds, the oldest first
  std::vector<instance_identity> owners;  ///< of the blocks, by adopted_block::owner
  entry_keys keys;                        ///< … by adopted_block::number, if they are wanted
  std::uint64_t damaged = 0;              ///< records that were left out
  std::vector<std::pair<instance_identity, instance_spec>> instances;  ///< that are remembered
  std::uint64_t removed = 0;  ///< blocks left out because they were to be forgotten
  std::chrono::milliseconds took{};
};

/// The tag of changes for which `saved` is called only if they fail.
inline constexpr std::uint64_t unasked = 0;

/// Called on threads of the devices; must not block.
struct device_events {
  std::function<void(opened_path)> opened;
  std::function<void(std::uint32_t path, std::vector<io_completion>)> completed;
  /// Perhaps more than once for a tag. For the tag `unasked` only failures.
  std::function<void(std::uint32_t path, std::uint64_t tag, const save_status&)> saved;
  /// An exception on a thread of the path, which goes on; what it did may be half done.
  std::function<void(std::uint32_t path, const std::string& what)> broke;
};

/// Thread-safe.
class devices {
 public:
  devices(device_options options, device_events events);
  devices(const devices&) = delete;
  devices& operator=(const devices&) = delete;
  ~devices();

  /// Whether open() would open the path, as far as that shows without a change that lasts. Errors: as
  /// path_file::check(); those of an engine that is asked for by name.
  [[nodiscard]] static result<path_need> check(const device_options& options, const std::string& directory);

  /// Begins to open all paths, each on a thread: a path waits for the last request of a worker that died.
  void open();
  /// Only for paths that opened.
  void submit(const std::vector<path_request>& requests);
  /// Writes the changes down; `saved` comes once for each of the paths that are returned, unless the tag is `unasked`.
  /// A path that is not open yet does it when it is.
  std::vector<std::uint32_t> save(std::vector<path_change> changes, std::uint64_t tag);
  /// As above, and no path may serve `removed` any more: those whose metadata may hold such blocks without our
  /// knowledge are asked, too.
  /// `everywhere`: all of them.
  std::vector<std::uint32_t> save_removals(std::vector<path_change> changes, const removal_set& removed,
                                           bool everywhere, std::uint64_t tag);
  /// For a path that has not answered: adds `removed` to what it, or the next worker, still has to remove there.
  void owe(std::uint32_t number, const removal_set& removed);
  /// Removals that are not written to the path's catalog yet.
  [[nodiscard]] std::uint64_t pending_removals_of(std::uint32_t number) const noexcept;
  /// Writes the spec to the catalogs, for `cenote nvme`.
  void remember(const instance_spec& spec);
  /// Makes transfers to and from `memory` cheaper where the machine allows it; a path that is not open yet makes up for
  /// it when it is. Pieces of some MiB: no transfer starts meanwhile.
  void pin(std::span<std::byte> memory);
  /// Undoes pin() of whatever lies in `memory`; to be called before it is unmapped.
  void unpin(std::span<std::byte> memory);
  /// What is pinned for a path now. Only for paths that opened.
  [[nodiscard]] std::uint64_t pinned_bytes(std::uint32_t number) const noexcept;
  /// Keeps memory that requests point into alive until the engines have stopped.
  void keep(std::shared_ptr<const void> memory) { kept_ = std::move(memory); }
  /// Cancels what has not reached a device, waits for the rest, writes what waits to be saved. No event comes after.
  void stop() noexcept;

  [[nodiscard]] std::uint64_t data_bytes() const noexcept;
  [[nodiscard]] const std::string& directory_of(std::uint32_t number) const noexcept;

 private:
  struct path;
  void open_one(std::uint32_t number);
  [[nodiscard]] exception_callback breaks(std::uint32_t number);
  result<void> try_to_open(path& into, opened_path& found);
  void let_in(path& opened, bool works);
  result<void> open_path(path& into, opened_path& found);
  result<void> open_catalog(path& into, opened_path& found);
  void submit_changes(path& to, std::vector<catalog_change> changes, std::uint64_t tag);
  void refuse_changes(path& target, const std::vector<catalog_change>& changes, std::uint64_t tag);
  void pin_waiting(path& target);

  device_options options_;
  device_events events_;
  std::shared_ptr<const void> kept_;
  std::mutex pins_mutex_;  ///< held while memory is pinned, so that nobody unpins it meanwhile
  std::vector<std::unique_ptr<path>> paths_;
};

}  // namespace cenote::nvme
