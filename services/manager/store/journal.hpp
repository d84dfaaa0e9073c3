// The store beside the index: rows that a manager writes before it answers, and reads when it starts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote::manager {

/// Kinds of rows; a row's name begins with one.
enum class row_kind : char {
  registry = 'r',  ///< storages, groups, instances, accounts
  extent = 'e',    ///< a grant: written once
  mask = 'm',      ///< the states of a grant's blocks
};

/// A row that is written, or (without a value) taken away.
struct journal_row {
  std::string name{};
  std::optional<std::string> value{};

  /// Of the name and the value.
  [[nodiscard]] std::size_t bytes() const noexcept { return name.size() + (value ? value->size() : 0); }
};

using row_visitor = std::function<void(std::string_view name, std::string_view value)>;

/// A store of rows. One thread uses it, and every call may block, but no longer than the store's timeout; a read may as
/// long as rows come. Values are any bytes; their reader checks them.
class journal {
 public:
  journal() = default;
  journal(const journal&) = delete;
  journal& operator=(const journal&) = delete;
  virtual ~journal() = default;

  /// Begins an epoch, which is higher than all before. From then on the store refuses what writers of an earlier epoch
  /// still send. Errors: system, deadline_exceeded, layout_mismatch (the store holds something else).
  [[nodiscard]] virtual result<std::uint32_t> raise_epoch() = 0;
  /// Writes all changes or none, in their order. Errors: revoked (another writer has begun an epoch, or the store is an
  /// older copy; nothing was written); system, deadline_exceeded (whether they were written is not known).
  [[nodiscard]] virtual result<> write(std::span<const journal_row> changes) = 0;
  /// Visits all rows of a kind, each once, in any order. Errors: system, deadline_exceeded.
  [[nodiscard]] virtual result<> read(row_kind kind, const row_visitor& visit) = 0;
};

}  // namespace cenote::manager
