// Engines' hashes as names of blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/indexer/forest/block_store.hpp"
#include "services/indexer/forest/number_table.hpp"

namespace cenote::indexer {

/// (domain, engine hash) → block. The name in the domain of a block's run lies in the array of blocks and takes four
/// bytes and free slots here; one in another domain takes 16 bytes and free slots. The writer's alone.
class engine_names {
 public:
  /// Throws std::bad_alloc.
  engine_names(retirement_list& retired, block_store& blocks, std::uint64_t seed);

  /// The stand-in in the array of hashes for a block without name in its run's domain.
  [[nodiscard]] std::uint64_t unnamed() const noexcept { return unnamed_; }

  /// The block of a name; no_block if it names none.
  [[nodiscard]] block_number find(name_domain domain, std::uint64_t hash) const noexcept;
  /// Names a block in its run's domain; false: memory is out. The name names nothing else.
  [[nodiscard]] bool add(block_number block, std::uint64_t hash) noexcept;
  /// Names a block in a further domain, or by a further hash; false: memory is out.
  [[nodiscard]] bool add_extra(name_domain domain, block_number block, std::uint64_t hash) noexcept;
  /// Forgets the name in the run's domain; others end with the run.
  void erase(block_number block) noexcept;
  /// Forgets the names of a domain that do not lie in the array of blocks.
  void erase_extra(name_domain domain) noexcept;

  /// Start to load what find() looks at first, and then: the second wants the first to have arrived.
  void prefetch(std::uint64_t hash) const noexcept {
    const std::uint64_t mixed = spread(hash, seed_);
    part(mixed).prefetch(mixed << part_bits);
  }
  void prefetch_block(std::uint64_t hash) const noexcept;

  [[nodiscard]] std::size_t size() const noexcept;

 private:
  static constexpr unsigned part_bits = 2;

  /// A name that does not lie in the array of blocks; stale if the run of its block was born at another time.
  struct extra_name {
    std::uint64_t hash = 0;
    block_number block = no_block;
    std::uint32_t birth = 0;  ///< 0: a free slot
  };
  template <class T>
  using counted_vector = std::vector<T, budget_allocator<T>>;
  struct extra_table {
    explicit extra_table(index_budget& budget) : slots(budget_allocator<extra_name>(budget)) {}
    counted_vector<extra_name> slots;
    std::size_t occupied = 0;
  };

  [[nodiscard]] number_table& part(std::uint64_t mixed) noexcept { return *parts_[mixed >> (64 - part_bits)]; }
  [[nodiscard]] const number_table& part(std::uint64_t mixed) const noexcept {
    return *parts_[mixed >> (64 - part_bits)];
  }
  [[nodiscard]] bool is_current(const extra_name& name) const noexcept;
  [[nodiscard]] std::size_t place(const extra_table& table, std::uint64_t hash) const noexcept;
  [[nodiscard]] bool make_room(extra_table& table) noexcept;

  retirement_list& retired_;
  block_store& blocks_;
  std::uint64_t seed_;
  std::uint64_t unnamed_;
  std::array<std::optional<number_table>, std::size_t{1} << part_bits> parts_;  ///< one that grows is a part of all
  counted_vector<extra_table> extra_;                                           ///< by domain
};

}  // namespace cenote::indexer
