// The pods that a node's blocks serve: those whose machine it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/indexer/forest/epochs.hpp"

namespace cenote::indexer {

/// A node, and one of the ranks of pods that it serves; both are numbers of members.
struct node_link {
  std::uint32_t node = 0;
  std::uint32_t member = 0;

  friend auto operator<=>(const node_link&, const node_link&) = default;
};

/// 64 members that a node serves.
struct served_word {
  std::uint64_t bits = 0;
  std::uint32_t node = 0;
  std::uint32_t word = 0;
};

/// One writer replaces the links as a whole; readers within an epoch look at them.
class node_links {
 public:
  /// Members are below 64 × `words`.
  node_links(retirement_list& retired, std::size_t words) noexcept : retired_(retired), words_(words) {}
  node_links(const node_links&) = delete;
  node_links& operator=(const node_links&) = delete;
  node_links(node_links&&) = delete;
  node_links& operator=(node_links&&) = delete;
  ~node_links();

  /// The members that are nodes, and their links, both ascending. False if memory is out; the old ones hold then.
  [[nodiscard]] bool replace(std::span<const std::uint32_t> nodes, std::span<const node_link> links) noexcept;

  /// True if there is no node at all. Readers, too.
  [[nodiscard]] bool empty() const noexcept { return table_.load(std::memory_order_acquire) == nullptr; }
  /// The bits of 64 members that are nodes. Readers, too.
  [[nodiscard]] std::uint64_t nodes(std::uint32_t word) const noexcept {
    const link_table* const table = table_.load(std::memory_order_acquire);
    return table == nullptr ? 0 : table->nodes()[word];
  }
  /// The members that a node serves, by word. Readers, too.
  [[nodiscard]] std::span<const served_word> served(std::uint32_t node) const noexcept;

 private:
  /// Words of bits of nodes, then the words that they serve.
  struct link_table {
    std::size_t bytes = 0;
    std::size_t words = 0;
    std::size_t count = 0;

    [[nodiscard]] const std::uint64_t* nodes() const noexcept {
      return reinterpret_cast<const std::uint64_t*>(this + 1);
    }
    [[nodiscard]] std::uint64_t* nodes() noexcept { return reinterpret_cast<std::uint64_t*>(this + 1); }
    [[nodiscard]] const served_word* served() const noexcept {
      return reinterpret_cast<const served_word*>(nodes() + words);
    }
    [[nodiscard]] served_word* served() noexcept { return reinterpret_cast<served_word*>(nodes() + words); }
  };

  retirement_list& retired_;
  std::size_t words_;
  std::atomic<link_table*> table_{nullptr};
};

}  // namespace cenote::indexer
