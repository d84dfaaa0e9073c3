#include "services/manager/writes/manager_state.hpp"

#include <bit>

#include "core/calendar_clock.hpp"

namespace cenote::manager {

extent_finish finish_of(const extent_state& extent) noexcept {
  return {.nonce = extent.nonce,
          .wrote_at = extent.wrote_at,
          .finish_mark = extent.finish_mark,
          .blocks = static_cast<std::uint32_t>(extent.states.size())};
}

std::int64_t instance_state::bytes_of(std::uint64_t specs) const noexcept {
  std::int64_t sum = 0;
  for (; specs != 0; specs &= specs - 1) {
    sum += static_cast<std::int64_t>(terms->specs[static_cast<std::size_t>(std::countr_zero(specs))].bytes);
  }
  return sum;
}

instance_state* manager_state::instance(std::uint64_t number) const noexcept {
  const auto found = instances.find(number);
  return found == instances.end() ? nullptr : found->second.get();
}

instance_state* manager_state::instance_called(std::string_view id) const noexcept {
  const auto number = instance_numbers.find(id);
  return number == instance_numbers.end() ? nullptr : instance(number->second);
}

storage_state* manager_state::storage_called(std::string_view name) const noexcept {
  const auto number = storage_numbers.find(name);
  return number == storage_numbers.end() ? nullptr : storages[number->second].get();
}

void charge(manager_state& state, instance_state& instance, std::uint8_t storage, std::int64_t used,
            std::int64_t deleting) {
  const auto add = [&](byte_account& account) {
    account.used += used;
    account.deleting += deleting;
  };
  add(instance.bytes);
  add(instance.group->bytes);
  instance.is_touched = instance.group->is_touched = true;
  storage_state* const place = storage < most_storages ? state.storages[storage].get() : nullptr;
  if (place == nullptr) return;
  add(place->bytes);
  add(instance.group->kinds[place->terms->type]);
}

bool is_deleted_alone(const instance_state& instance, std::uint32_t record) {
  bool has_live = false, has_deleted = false;
  instance.index->visit_locations(record, [&](const location& place) {
    (place.state == location_state::deleting ? has_deleted : has_live) = true;
  });
  return has_deleted && !has_live;
}

std::uint32_t tenths_of(round_time now) noexcept {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() / 100;
  return static_cast<std::uint32_t>(tenths);
}

std::int64_t unix_ms() noexcept {
  return static_cast<std::int64_t>(calendar_ns() / 1'000'000);
}

std::uint32_t unix_seconds() noexcept {
  return static_cast<std::uint32_t>(calendar_ns() / 1'000'000'000);
}

}  // namespace cenote::manager
