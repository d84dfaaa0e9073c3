// A store of the NVMe tier, looked at while no node has it open. Nothing in it is changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "tiers/nvme/catalog.hpp"
#include "tiers/nvme/make_engine.hpp"
#include "tiers/nvme/path_file.hpp"

namespace cenote {

/// Blocks that are counted together. Times are unix seconds of the last use, 0 without blocks.
struct block_sum {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::uint32_t oldest = 0;
  std::uint32_t newest = 0;

  void add(const nvme::stored_block& block) noexcept;
};

struct instance_summary {
  instance_identity identity{};
  std::optional<instance_spec> spec;  ///< nothing when it is not written down any more
  block_sum sum;
};

struct store_summary {
  std::string directory;
  std::uint64_t store_id = 0;
  std::uint64_t data_bytes = 0;  ///< size of the data file
  std::uint64_t metadata_bytes = 0;
  std::uint64_t damaged = 0;  ///< records that cannot be read
  bool direct = false;
  block_sum sum;
  std::vector<instance_summary> instances;  ///< by identity
};

struct wrong_block {
  nvme::stored_block block;
  std::string instance;  ///< its id, or "unknown"
  std::string why;
};

struct verify_report {
  static constexpr std::size_t most_named = 20;

  std::string directory;
  std::uint64_t store_id = 0;
  std::string engine;
  bool direct = false;
  std::uint64_t blocks = 0;  ///< checked
  std::uint64_t bytes = 0;   ///< read
  std::uint64_t wrong = 0;
  std::uint64_t damaged = 0;       ///< records that cannot be read
  double seconds = 0;              ///< of reading
  std::vector<wrong_block> named;  ///< the first of the wrong ones, by offset

  [[nodiscard]] bool all_right() const noexcept { return wrong == 0 && damaged == 0; }
  [[nodiscard]] double gib_per_second() const noexcept;
};

/// Keeps nodes away from the store while it lives. Not thread-safe.
class closed_store {
 public:
  /// Errors: as path_file::open_read_only and catalog::open.
  [[nodiscard]] static result<closed_store> open(const std::string& directory);

  [[nodiscard]] result<store_summary> summarize() const;
  /// Reads every block and compares its checksum. A block that cannot be read is a wrong one, not an error.
  [[nodiscard]] result<verify_report> verify(nvme::engine_kind kind = nvme::engine_kind::automatic) const;

 private:
  closed_store(nvme::path_file file, nvme::catalog known) noexcept : file_(std::move(file)), known_(std::move(known)) {}

  nvme::path_file file_;
  nvme::catalog known_;
};

}  // namespace cenote
