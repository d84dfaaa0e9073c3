// An NVMe store with what its actor gives it: paths in memory, and their catalogs as maps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "memory/lower_hints.hpp"
#include "tests/support/fake_io.hpp"
#include "tests/support/numbered_identity.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote::nvme::testing {

/// The `n`-th key, of some width.
full_key key_of(std::uint64_t n);
block_key short_key_of(std::uint64_t n);
instance_identity identity_of_instance(instance_number instance);
/// Contents derive from instance and key: no other block looks the same, not even one sector of it.
void fill(std::span<std::byte> memory, instance_number instance, std::uint64_t n);
bool holds(std::span<const std::byte> memory, instance_number instance, std::uint64_t n);

using catalog_map = std::map<std::pair<instance_identity, block_key>, stored_block>;
void apply_to(catalog_map& catalog, const catalog_change& change);

struct tier_options {
  store_options store;
  std::uint64_t bytes = 4 * MiB;  ///< of a path's blocks
  std::uint64_t max_blocks = 1'000'000;
  std::map<instance_number, std::uint64_t> block_bytes{{1, 4 * KiB}, {2, 4 * KiB}};
  bool hints = true;
};

/// Plays the actor. Nothing is completed but by settle() or step(). After every step it looks whether slots in use
/// overlap, and whether status and catalogs agree: `wrong` has the first thing that was not as it should be.
class tier {
 public:
  tier();
  explicit tier(tier_options with);

  /// Hands a block over and returns its token.
  std::uint64_t ask_write(std::uint64_t n, instance_number instance = 1);
  std::uint64_t ask_read(std::uint64_t n, instance_number instance = 1);
  /// As above, and waits for all that is not held.
  transfer_result write(std::uint64_t n, instance_number instance = 1);
  /// With a checksum that somebody says he took.
  transfer_result write_summed(std::uint64_t n, std::uint64_t checksum);
  transfer_result read(std::uint64_t n, instance_number instance = 1);
  std::uint64_t remove(std::uint64_t n, instance_number instance = 1);
  std::uint64_t clear(instance_number instance);
  void tick();

  /// Completes one request of a path; false: it has none.
  bool step(std::uint32_t path);
  void settle();
  void release();
  /// The process ends with what is under way, another one takes the paths over.
  void restart();
  /// The machine loses its power: with `journal`, any of the writes since the start may be on the device, in part or
  /// not at all, and the newest records are lost, or any of them.
  void cut_power(std::mt19937_64& random);
  /// Opens the paths for a new store with the blocks of the catalogs.
  void open();

  [[nodiscard]] std::optional<transfer_result> result_of(std::uint64_t token) const;
  [[nodiscard]] bool hinted(std::uint64_t n, instance_number instance = 1) const;
  [[nodiscard]] bool contains(std::uint64_t n, instance_number instance = 1) const;
  /// Path and record of a block; it must be there.
  [[nodiscard]] std::pair<std::uint32_t, stored_block*> find(std::uint64_t n, instance_number instance = 1);
  /// Numbers of the blocks of instance 1 on a path.
  [[nodiscard]] std::vector<std::uint64_t> blocks_on(std::uint32_t path, std::uint64_t below) const;
  [[nodiscard]] bool was_lost(std::uint64_t n, instance_number instance = 1) const;
  [[nodiscard]] std::size_t unanswered() const noexcept { return pending_.size(); }

  struct path_model {
    std::unique_ptr<fake_io> io;
    catalog_map catalog;
    std::vector<catalog_change> log;                                        ///< all changes, with `journal`
    std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> written;  ///< offset and bytes
  };

  tier_options options;
  std::unique_ptr<nvme::store> store;
  std::vector<path_model> paths;
  std::vector<lost_block> lost;
  std::uint64_t refused = 0;  ///< by adopt()
  bool journal = false;
  wall_time now = wall_time_of(100);
  std::string wrong;

 private:
  struct aligned_block {
    std::unique_ptr<std::byte, aligned_free> bytes;
    std::uint64_t size = 0;
    [[nodiscard]] std::span<std::byte> all() const noexcept { return {bytes.get(), size}; }
  };
  struct pending {
    bool is_read = false;
    instance_number instance = 0;
    std::uint64_t n = 0;
    aligned_block memory;
  };
  struct request {
    io_kind kind = io_kind::read;
    std::uint64_t first = 0, end = 0;
    std::vector<std::byte> bytes;
  };

  transfer make(bool is_read, std::uint64_t n, instance_number instance);
  std::unique_ptr<fake_io> make_io(std::uint32_t path);
  void forget_process();
  /// What the actor does after every message.
  void pass_on();
  void hear();
  void take_completions(std::uint32_t path, std::span<const io_completion> batch);
  void check();

  std::map<instance_number, memory::index_memory> hints_;
  std::map<std::uint64_t, pending> pending_;
  std::map<std::uint64_t, transfer_result> answers_;
  std::vector<std::map<std::uint64_t, request>> under_way_;  ///< by path and tag
  std::vector<std::vector<io_completion>> ended_;
  std::uint64_t next_token_ = 1;
};

/// Random work of one step: mostly writes and reads, with faults now and then.
void random_step(tier& tier, std::mt19937_64& random, std::uint64_t keys, bool faults);

}  // namespace cenote::nvme::testing
