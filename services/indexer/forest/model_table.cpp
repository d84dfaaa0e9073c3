#include "services/indexer/forest/model_table.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/checksum.hpp"

namespace cenote::indexer {

namespace {

constexpr unsigned model_bits = 6;

}  // namespace

model_table::model_table(retirement_list& retired, std::uint64_t seed)
    : retired_(retired),
      seed_(seed),
      records_(retired.budget(), most_models, model_bits),
      names_(retired, most_models),
      users_(budget_allocator<model_users>(retired.budget())) {}

model_table::~model_table() {
  for (std::uint32_t i = 0; i < count_; ++i) {
    model_record* const record = records_[i].load(std::memory_order_relaxed);
    retired_.budget().release(record, record->bytes());
  }
}

std::uint64_t model_table::hash_of(std::string_view name) const noexcept {
  return checksum_of(name.data(), name.size(), seed_);
}

std::uint32_t model_table::find_number(std::string_view name) const noexcept {
  return names_.find(hash_of(name), [&](std::uint32_t number) {
    return records_[number].load(std::memory_order_acquire)->name() == name;
  });
}

std::optional<model_facts> model_table::find(std::string_view name) const noexcept {
  const std::uint32_t number = find_number(name);
  if (number == number_table::no_number) return std::nullopt;
  const model_facts found = records_[number].load(std::memory_order_acquire)->facts;
  if (!found.is_adapter) return found;
  model_facts base = records_[found.number].load(std::memory_order_acquire)->facts;
  base.is_adapter = true;
  return base;
}

std::optional<model_number> model_table::obtain(std::string_view name) noexcept {
  const std::uint32_t known = find_number(name);
  const bool is_new = known == number_table::no_number;
  const auto number = static_cast<model_number>(is_new ? count_ : known);
  model_facts first;
  first.number = number;
  if (is_new) {
    if (!add(name, first)) return std::nullopt;
  } else if (facts(number).is_adapter && !replace(number, first)) {
    return std::nullopt;
  }
  ++users_[number].publishers;
  return number;
}

// Gives a number that nothing uses to another name.
bool model_table::rename(model_number number, std::string_view name) noexcept {
  model_record* const old = records_[number].load(std::memory_order_relaxed);
  void* const memory =
      name.size() > most_name ? nullptr : retired_.budget().allocate(sizeof(model_record) + name.size());
  if (memory == nullptr) return false;
  model_facts first;
  first.number = number;
  auto* const record = new (memory) model_record{.hash = hash_of(name), .length = name.size(), .facts = first};
  std::memcpy(record + 1, name.data(), name.size());
  names_.erase(old->hash, number);
  records_[number].store(record, std::memory_order_release);
  names_.insert(record->hash, number);
  retired_.add_memory(old, old->bytes());
  users_[number] = {};
  return true;
}

bool model_table::add_adapter(std::string_view name, model_number model) noexcept {
  if (find_number(name) != number_table::no_number) return true;
  if (count_ >= most_models / 2) return false;
  model_facts adapter;
  adapter.number = model;
  adapter.is_adapter = true;
  return add(name, adapter).has_value();
}

const model_facts& model_table::facts(model_number number) const noexcept {
  return records_[number].load(std::memory_order_acquire)->facts;
}

std::string_view model_table::name(model_number number) const noexcept {
  return records_[number].load(std::memory_order_acquire)->name();
}

bool model_table::add_size(model_number number, std::uint32_t block_tokens) noexcept {
  model_facts next = facts(number);
  auto& users = users_[number].sizes;
  const auto sizes = next.block_sizes();
  const auto place = static_cast<std::size_t>(std::ranges::lower_bound(sizes, block_tokens) - sizes.begin());
  if (place < sizes.size() && sizes[place] == block_tokens) {
    ++users[place];
    return true;
  }
  if (next.size_count == model_facts::most_sizes) return false;
  std::shift_right(next.sizes.begin() + static_cast<std::ptrdiff_t>(place), next.sizes.end(), 1);
  next.sizes[place] = block_tokens;
  ++next.size_count;
  if (!replace(number, next)) return false;
  std::shift_right(users.begin() + static_cast<std::ptrdiff_t>(place), users.end(), 1);
  users[place] = 1;
  return true;
}

void model_table::release_size(model_number number, std::uint32_t block_tokens) noexcept {
  model_facts next = facts(number);
  auto& users = users_[number].sizes;
  const auto found = std::ranges::find(next.block_sizes(), block_tokens);
  const auto place = found - next.block_sizes().begin();
  if (--users[static_cast<std::size_t>(place)] > 0) return;
  std::shift_left(next.sizes.begin() + place, next.sizes.end(), 1);
  next.sizes.back() = 0;
  --next.size_count;
  if (!replace(number, next)) {
    users[static_cast<std::size_t>(place)] = 1;  // it stays: questions cost a little more
    return;
  }
  std::shift_left(users.begin() + place, users.end(), 1);
  users.back() = 0;
}

std::optional<slot_number> model_table::add_slot(model_number number, const slot_rule& rule) noexcept {
  model_facts next = facts(number);
  auto& users = users_[number].slots;
  slot_number vacant = next.slot_count;
  for (slot_number slot = 1; slot < next.slot_count; ++slot) {
    if (next.slots[slot] == rule) {
      ++users[slot];
      return slot;
    }
    if (users[slot] == 0) vacant = slot;
  }
  if (vacant == closed_slot) return std::nullopt;
  next.slots[vacant] = rule;
  next.slot_count = std::max<std::uint8_t>(next.slot_count, static_cast<std::uint8_t>(vacant + 1));
  if (!replace(number, next)) return std::nullopt;
  users[vacant] = 1;
  return vacant;
}

std::optional<std::uint32_t> model_table::add(std::string_view name, const model_facts& facts) noexcept {
  if (name.size() > most_name || count_ == most_models) return std::nullopt;
  const auto hash_of_number = [&](std::uint32_t number) {
    return records_[number].load(std::memory_order_relaxed)->hash;
  };
  if (!names_.make_room(1, 0, hash_of_number, [](std::uint32_t) {})) return std::nullopt;
  if (count_ == records_.capacity() && !records_.grow()) return std::nullopt;
  try {
    users_.resize(count_ + 1);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
  void* const memory = retired_.budget().allocate(sizeof(model_record) + name.size());
  if (memory == nullptr) return std::nullopt;
  auto* const record = new (memory) model_record{.hash = hash_of(name), .length = name.size(), .facts = facts};
  std::memcpy(record + 1, name.data(), name.size());
  records_[count_].store(record, std::memory_order_release);
  names_.insert(record->hash, count_);
  return count_++;
}

bool model_table::replace(std::uint32_t number, const model_facts& facts) noexcept {
  model_record* const old = records_[number].load(std::memory_order_relaxed);
  void* const memory = retired_.budget().allocate(old->bytes());
  if (memory == nullptr) return false;
  auto* const record = new (memory) model_record{.hash = old->hash, .length = old->length, .facts = facts};
  std::memcpy(record + 1, old + 1, old->length);
  records_[number].store(record, std::memory_order_release);
  retired_.add_memory(old, old->bytes());
  return true;
}

}  // namespace cenote::indexer
