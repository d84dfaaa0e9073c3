// What one path of the NVMe tier holds, kept in RocksDB beside the data file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/block_key.hpp"
#include "core/instance_spec.hpp"
#include "core/stored_identity.hpp"
#include "core/time_types.hpp"

namespace cenote::nvme {

/// One block on the path.
struct stored_block {
  block_key key;               ///< reduced
  full_key full;               ///< the engine's own
  instance_identity instance;  ///< identity_of its spec
  std::uint32_t group = 0;
  wall_time touch{};           ///< the last use that was written down
  std::uint64_t offset = 0;    ///< bytes from the start of the data file
  std::uint64_t bytes = 0;     ///< of the block itself, 1 byte to 1 GiB
  std::uint64_t checksum = 0;  ///< XXH3-64 of the bytes; how it is mixed with the full key is the caller's affair
  bool operator==(const stored_block&) const = default;
};

/// One thing to write down.
struct catalog_change {
  enum class kind : std::uint8_t {
    put,
    erase,             ///< looks at block.instance and block.key only
    erase_blocks,      ///< all blocks of block.instance; its spec, and so its name, stays
    erase_named,       ///< the same of all instances with a name, of which block.instance is the name_identity()
    erase_name,        ///< the spec of block.instance
    erase_everything,  ///< all blocks
  };
  kind what = kind::put;
  stored_block block;
};

struct catalog_options {
  std::string directory;        ///< the metadata lies in its subdirectory "metadata" (0700, files 0600)
  std::uint64_t store_id = 0;   ///< of the data file that the metadata describes
  std::uint64_t max_bytes = 0;  ///< what the metadata should stay below; sets how much it buffers
  bool read_only = false;       ///< to look while no node has it open: takes no lock, writes nothing
};

struct load_counts {
  std::uint64_t blocks = 0;
  std::uint64_t damaged = 0;  ///< records that were left out
};

using cenote::identity_of;
/// The identity of an instance's name.
[[nodiscard]] instance_identity name_identity(const std::string& id);

/// Every record carries a check of its own and stands alone: what is read is something that was written once, though
/// after damage or a power cut not always the last. So whoever reads a block compares its checksum before it is used.
/// Thread-safe, apart from moves.
class catalog {
 public:
  /// Makes the metadata when there is none, unless read_only. Metadata on a full disk is opened all the same, see
  /// waits_for_space(). Errors: `no_space` (there is none, and no room to make it), `layout_mismatch` (a later version;
  /// nothing is changed), `malformed` (RocksDB finds it damaged, it belongs to another data file, or is of an earlier
  /// version, whose blocks are not known by safe identities; the message has the reason), `system` (disk, permission,
  /// or another process has it open).
  [[nodiscard]] static result<catalog> open(const catalog_options& options);

  catalog(catalog&&) noexcept;
  catalog& operator=(catalog&&) noexcept;
  catalog(const catalog&) = delete;
  catalog& operator=(const catalog&) = delete;
  /// What was applied is kept; nothing is lost by not getting here.
  ~catalog();

  /// Calls `visit` for every block whose record is sound, ordered by instance and key; it must not throw. `malformed`
  /// when RocksDB cannot read on: what came until then is sound, but the rest is lost and the metadata should be set
  /// aside.
  [[nodiscard]] result<load_counts> load(const std::function<void(const stored_block&)>& visit) const;

  /// Remembers the spec under its identity.
  [[nodiscard]] result<void> put_instance(const instance_spec& spec);
  /// All that were remembered; damaged ones are left out.
  [[nodiscard]] result<std::vector<std::pair<instance_identity, instance_spec>>> instances() const;

  /// Writes all changes, in order, or none. They survive the end of the process, not that of the machine: nothing is
  /// synced. `invalid_argument`: a block that makes no sense (key, size), and nothing was written.
  /// `synced`: they survive that, too.
  [[nodiscard]] result<void> apply(std::span<const catalog_change> changes, bool synced = false);
  /// After apply() failed: makes ready to write again, as far as the disk allows it. Nobody else may use the catalog
  /// meanwhile.
  [[nodiscard]] result<void> recover();

  /// The disk was full when it was opened: it can be read, and recover() makes it writable when there is space again.
  [[nodiscard]] bool waits_for_space() const noexcept;

  /// Counts what was written; metadata that is found with a smaller number than before has lost records.
  [[nodiscard]] std::uint64_t sequence() const noexcept;

  /// Sizes of all files of the metadata, bytes.
  [[nodiscard]] std::uint64_t disk_bytes() const;

  /// Renames DIRECTORY/metadata to DIRECTORY/metadata.damaged-N, and removes the one before. No metadata: nothing to
  /// do. Nobody may have it open.
  [[nodiscard]] static result<void> set_aside(const std::string& directory);

 private:
  struct state;
  explicit catalog(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

}  // namespace cenote::nvme
