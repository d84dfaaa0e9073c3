// Models by name, and what a question needs to know about each: sizes of blocks, and the slots of cache groups.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "services/indexer/forest/chunked_array.hpp"
#include "services/indexer/forest/epochs.hpp"
#include "services/indexer/forest/holder_table.hpp"
#include "services/indexer/forest/number_table.hpp"

namespace cenote::indexer {

using model_number = std::uint16_t;

/// The blocks of a cache group that an answer wants.
struct slot_rule {
  std::uint32_t window_tokens = 0;  ///< before the end of the prefix; 0: all of it
  std::int32_t group = 0;           ///< index of the cache group

  friend bool operator==(const slot_rule&, const slot_rule&) = default;
};

/// Facts about a model.
struct model_facts {
  static constexpr std::size_t most_sizes = 16;

  model_number number = 0;
  std::uint8_t size_count = 0;
  std::uint8_t slot_count = 1;                    ///< slot 0 is there always
  bool is_adapter = false;                        ///< the name is one of an adapter of the model `number`
  std::array<std::uint32_t, most_sizes> sizes{};  ///< tokens a block, ascending
  std::array<slot_rule, most_slots> slots{};

  [[nodiscard]] std::span<const std::uint32_t> block_sizes() const noexcept { return {sizes.data(), size_count}; }
};

/// One writer adds and replaces facts; readers within an epoch copy them.
class model_table {
 public:
  static constexpr std::size_t most_models = 4096;  ///< names, those of adapters among them
  static constexpr std::size_t most_name = 256;     ///< bytes

  /// Throws std::bad_alloc.
  model_table(retirement_list& retired, std::uint64_t seed);
  model_table(const model_table&) = delete;
  model_table& operator=(const model_table&) = delete;
  model_table(model_table&&) = delete;
  model_table& operator=(model_table&&) = delete;
  ~model_table();

  /// The facts of a name. Readers, too.
  [[nodiscard]] std::optional<model_facts> find(std::string_view name) const noexcept;
  /// The number of a model, a new one if it has none; none: too many, a name that is too long, or memory is out.
  /// An adapter's name becomes a model's. Each call wants a release(). Where there is no number, that of an adapter's
  /// name, or of a model that was released and of which `is_used(number)` does not hold, gets another name.
  template <class Predicate>
  [[nodiscard]] std::optional<model_number> obtain(std::string_view name, Predicate&& is_used) noexcept {
    if (count_ == most_models && find_number(name) == number_table::no_number && !rename_one(name, is_used)) {
      return std::nullopt;
    }
    return obtain(name);
  }
  [[nodiscard]] std::optional<model_number> obtain(std::string_view name) noexcept;
  /// A user of the model ends. Its name stays as long as there is room.
  void release(model_number number) noexcept { --users_[number].publishers; }
  /// Makes questions for an adapter's name questions for its model. False if there is no room, of which a half is for
  /// models; a model's name stays.
  bool add_adapter(std::string_view name, model_number model) noexcept;
  /// The facts of a number that was given out.
  [[nodiscard]] const model_facts& facts(model_number number) const noexcept;
  /// The name of a number. Readers, too.
  [[nodiscard]] std::string_view name(model_number number) const noexcept;
  /// Adds a user of a size of blocks; false: there are too many, or memory is out.
  [[nodiscard]] bool add_size(model_number number, std::uint32_t block_tokens) noexcept;
  void release_size(model_number number, std::uint32_t block_tokens) noexcept;
  /// Adds a user of the slot of a rule, a new one if it has none; none: there are too many, or memory is out.
  [[nodiscard]] std::optional<slot_number> add_slot(model_number number, const slot_rule& rule) noexcept;
  void release_slot(model_number number, slot_number slot) noexcept { --users_[number].slots[slot]; }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  /// Publishers that use a model, each of its sizes, and each of its slots.
  struct model_users {
    std::uint32_t publishers = 0;
    std::array<std::uint32_t, model_facts::most_sizes> sizes{};
    std::array<std::uint32_t, most_slots> slots{};
  };
  struct model_record {
    std::uint64_t hash = 0;
    std::size_t length = 0;  ///< of the name, which lies behind this
    model_facts facts;

    [[nodiscard]] std::string_view name() const noexcept { return {reinterpret_cast<const char*>(this + 1), length}; }
    [[nodiscard]] std::size_t bytes() const noexcept { return sizeof(model_record) + length; }
  };

  template <class Predicate>
  [[nodiscard]] bool rename_one(std::string_view name, Predicate&& is_used) noexcept {
    for (std::size_t i = 0; i < most_models; ++i, ++next_renamed_) {
      const auto number = static_cast<model_number>(next_renamed_ % most_models);
      if (users_[number].publishers == 0 && (facts(number).is_adapter || !is_used(number))) return rename(number, name);
    }
    return false;
  }
  [[nodiscard]] bool rename(model_number number, std::string_view name) noexcept;
  [[nodiscard]] std::uint64_t hash_of(std::string_view name) const noexcept;
  [[nodiscard]] std::uint32_t find_number(std::string_view name) const noexcept;
  [[nodiscard]] std::optional<std::uint32_t> add(std::string_view name, const model_facts& facts) noexcept;
  [[nodiscard]] bool replace(std::uint32_t number, const model_facts& facts) noexcept;

  retirement_list& retired_;
  std::uint64_t seed_;
  chunked_array<std::atomic<model_record*>> records_;
  number_table names_;
  std::vector<model_users, budget_allocator<model_users>> users_;
  std::size_t next_renamed_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace cenote::indexer
