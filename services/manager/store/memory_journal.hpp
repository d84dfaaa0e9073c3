// A journal that lasts as long as its process.
#pragma once

#include <map>
#include <string>

#include "services/manager/store/journal.hpp"

namespace cenote::manager {

/// Rows in memory, for managers whose content may be lost, and for tests.
class memory_journal final : public journal {
 public:
  [[nodiscard]] result<std::uint32_t> raise_epoch() override { return ++epoch_; }
  [[nodiscard]] result<> write(std::span<const journal_row> changes) override;
  [[nodiscard]] result<> read(row_kind kind, const row_visitor& visit) override;

 private:
  std::uint32_t epoch_ = 0;
  std::map<std::string, std::string, std::less<>> rows_;
};

}  // namespace cenote::manager
