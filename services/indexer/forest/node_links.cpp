#include "services/indexer/forest/node_links.hpp"

#include <algorithm>
#include <new>

namespace cenote::indexer {

node_links::~node_links() {
  link_table* const table = table_.load(std::memory_order_relaxed);
  if (table != nullptr) retired_.budget().release(table, table->bytes);
}

bool node_links::replace(std::span<const std::uint32_t> nodes, std::span<const node_link> links) noexcept {
  link_table* made = nullptr;
  if (!nodes.empty()) {
    const std::size_t bytes = sizeof(link_table) + words_ * sizeof(std::uint64_t) + links.size() * sizeof(served_word);
    void* const memory = retired_.budget().allocate(bytes);
    if (memory == nullptr) return false;
    made = new (memory) link_table{.bytes = bytes, .words = words_};
    std::uninitialized_fill_n(made->nodes(), words_, 0);
    for (const std::uint32_t node : nodes) made->nodes()[node / 64] |= std::uint64_t{1} << (node % 64);
    for (const node_link& link : links) {
      served_word* const last = made->count == 0 ? nullptr : &made->served()[made->count - 1];
      const std::uint64_t bit = std::uint64_t{1} << (link.member % 64);
      if (last != nullptr && last->node == link.node && last->word == link.member / 64) {
        last->bits |= bit;
      } else {
        new (&made->served()[made->count++]) served_word{bit, link.node, link.member / 64};
      }
    }
  }
  link_table* const old = table_.exchange(made, std::memory_order_acq_rel);
  if (old != nullptr) retired_.add_memory(old, old->bytes);
  return true;
}

std::span<const served_word> node_links::served(std::uint32_t node) const noexcept {
  const link_table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return {};
  const auto found = std::ranges::equal_range(std::span(table->served(), table->count), node, {}, &served_word::node);
  return {found.data(), found.size()};
}

}  // namespace cenote::indexer
