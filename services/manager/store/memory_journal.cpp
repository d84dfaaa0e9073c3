#include "services/manager/store/memory_journal.hpp"

namespace cenote::manager {

result<> memory_journal::write(std::span<const journal_row> changes) {
  for (const journal_row& change : changes) {
    if (change.value) {
      rows_.insert_or_assign(change.name, *change.value);
    } else {
      rows_.erase(change.name);
    }
  }
  return {};
}

result<> memory_journal::read(row_kind kind, const row_visitor& visit) {
  const std::string first(1, static_cast<char>(kind));
  for (auto row = rows_.lower_bound(first); row != rows_.end() && row->first.starts_with(first); ++row) {
    visit(row->first, row->second);
  }
  return {};
}

}  // namespace cenote::manager
