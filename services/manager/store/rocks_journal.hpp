// A journal in RocksDB, on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "services/manager/store/journal.hpp"

namespace cenote::manager {

struct rocks_options {
  std::string folder{};                                  ///< made if it is not there
  bool is_synchronous = false;                           ///< fsync of each write: it survives a loss of power
  std::uint64_t cache_bytes = std::uint64_t{64} << 20U;  ///< of blocks, and as much of rows not yet in files at most
};

/// One process at a time opens a folder, by RocksDB's own lock; so no row has to carry the epoch.
class rocks_journal final : public journal {
 public:
  /// Errors: system (another process has it open, the disk), layout_mismatch (a database of something else).
  [[nodiscard]] static result<std::unique_ptr<rocks_journal>> open(const rocks_options& options);
  ~rocks_journal() override;

  [[nodiscard]] result<std::uint32_t> raise_epoch() override;
  [[nodiscard]] result<> write(std::span<const journal_row> changes) override;
  [[nodiscard]] result<> read(row_kind kind, const row_visitor& visit) override;

 private:
  class database;

  explicit rocks_journal(std::unique_ptr<database> opened);

  std::unique_ptr<database> database_;
};

}  // namespace cenote::manager
