#include "memory/index.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "memory/fence.hpp"

namespace cenote::memory {

namespace {

constexpr std::uint8_t no_table = 0xff;
constexpr std::uint64_t first_offset = page_bytes;
constexpr std::uint64_t steps_per_operation = 16;  // a table is emptied long before its successor is full
constexpr int lookup_attempts = 4;
constexpr std::uint64_t reconciled_slots = std::uint64_t{1} << 13;  // that a thread takes at a time

constexpr std::uint64_t pack_state(std::uint64_t generation, std::uint8_t old_table, std::uint8_t current) noexcept {
  return (generation << 16) | (std::uint64_t{old_table} << 8) | current;
}

bool same_key(const index_entry& entry, const block_key& key) noexcept {
  return entry.lo.load(std::memory_order_relaxed) == key.lo && entry.hi.load(std::memory_order_relaxed) == key.hi;
}

/// Where the fill must stay below: 0.7 of the slots.
constexpr std::uint64_t fill_limit(std::uint64_t slots) noexcept {
  return slots / 10 * 7;
}

std::uint64_t table_bytes(std::uint64_t slots) noexcept {
  return (slots * sizeof(index_entry) + page_bytes - 1) / page_bytes * page_bytes;
}

/// The headers of both parts; the rest follows when somebody looks for it.
result<index_memory> map_index(shared_file file, access mode) {
  auto tables = window::open(file, {0, index_area_bytes}, mode, page_bytes);
  if (!tables) return std::unexpected(tables.error());
  auto hints = window::open(file, {index_area_bytes, index_segment_bytes - index_area_bytes}, mode, page_bytes);
  if (!hints) return std::unexpected(hints.error());
  return index_memory{std::move(file), std::move(*tables), std::move(*hints)};
}

}  // namespace

result<index_memory> index_memory::create(shared_file file) {
  auto made = map_index(std::move(file), access::read_write);
  if (made) write_header(made->header().segment, segment_kind::index, index_segment_bytes);
  return made;
}

result<index_memory> index_memory::open(shared_file file, access mode) {
  auto made = map_index(std::move(file), mode);
  if (!made) return made;
  if (auto ok = check_header(made->header().segment, segment_kind::index, index_segment_bytes); !ok) {
    return std::unexpected(ok.error());
  }
  return made;
}

// ---------------------------------------------------------------------------------------------- reader

std::uint64_t index_reader::find_in(table_view table, const block_key& key) noexcept {
  if (table.entries == nullptr) return index_value::empty;
  std::uint64_t slot = home_slot(key, table.slots);
  for (std::uint64_t probes = 0; probes < table.slots; ++probes) {
    const index_entry& entry = table.entries[slot];
    std::uint64_t value = entry.value.load(std::memory_order_acquire);
    if (value == index_value::empty) return index_value::empty;
    // A value that changes under its key is a new publication of the same block: look again, but never for ever.
    for (int attempt = 0; attempt < lookup_attempts && value != index_value::deleted && difference(entry, key) == 0;
         ++attempt) {
      load_fence();
      const std::uint64_t again = entry.value.load(std::memory_order_acquire);
      if (again == value) return value;
      value = again;
    }
    if (++slot == table.slots) slot = 0;
  }
  return index_value::empty;
}

std::uint64_t index_reader::find(const block_key& key) const noexcept {
  std::uint64_t state = header().state.load(std::memory_order_acquire);
  for (int attempt = 0; attempt < lookup_attempts; ++attempt) {
    const auto old_table = static_cast<std::uint8_t>(state >> 8);
    if (old_table != no_table) {
      if (const std::uint64_t value = find_in(table(old_table), key); value != index_value::empty) return value;
    }
    if (const std::uint64_t value = find_in(table(state & 0xff), key); value != index_value::empty) return value;
    load_fence();
    const std::uint64_t again = header().state.load(std::memory_order_acquire);
    if (again == state) break;  // the tables did not change meanwhile: a true miss
    state = again;
  }
  return index_value::empty;
}

// ---------------------------------------------------------------------------------------------- writer

result<index_writer> index_writer::create(shared_file file) {
  auto memory = index_memory::create(std::move(file));
  if (!memory) return std::unexpected(memory.error());
  index_writer writer(std::move(*memory));
  if (auto ok = writer.start_table(index_min_slots); !ok) return std::unexpected(ok.error());
  return writer;
}

result<index_writer> index_writer::open(shared_file file) {
  auto memory = index_memory::open(std::move(file), access::read_write);
  if (!memory) return std::unexpected(memory.error());
  index_writer writer(std::move(*memory));
  const std::uint64_t state = writer.header().state.load(std::memory_order_acquire);
  writer.generation_ = state >> 16;
  writer.current_ = writer.adopt(static_cast<std::uint8_t>(state & 0xff));
  writer.old_ = writer.adopt(static_cast<std::uint8_t>((state >> 8) & 0xff));
  if (writer.current_.entries == nullptr)
    return fail(error_code::layout_mismatch, "an index has no current table, or none that can be mapped");
  // One that cannot be mapped is not kept true any more, so readers must not look there first.
  const bool names_old = static_cast<std::uint8_t>(state >> 8) != no_table;
  if (names_old && writer.old_.entries == nullptr) writer.publish_state();
  return writer;
}

index_writer::table index_writer::adopt(std::uint8_t number) const noexcept {
  table found;
  if (number >= header().tables.size()) return found;
  const std::uint64_t offset = header().tables[number].offset.load(std::memory_order_relaxed);
  const std::uint64_t slots = header().tables[number].slots.load(std::memory_order_relaxed);
  if (slots == 0 || offset < first_offset || offset + table_bytes(slots) > index_area_bytes) return found;
  std::byte* entries = memory_.tables.reach(offset, table_bytes(slots));
  if (entries == nullptr) return found;
  found.entries = reinterpret_cast<index_entry*>(entries);
  found.slots = slots;
  found.offset = offset;
  found.number = number;
  return found;
}

index_writer::slot_report index_writer::check_slots(const table& from, std::uint64_t first, std::uint64_t end,
                                                    const claims_check& check) {
  slot_report report;
  std::array<index_claim, claims_at_once> claims;
  std::array<std::uint64_t, claims_at_once> slots;
  std::array<std::uint8_t, claims_at_once> valid;
  std::size_t count = 0;
  const auto settle = [&] {
    check(std::span(claims).first(count), std::span(valid).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (valid[i] != 0) {
        ++report.live;
      } else {
        report.dropped_slots.push_back(slots[i]);
      }
    }
    count = 0;
  };
  for (std::uint64_t slot = first; slot < end; ++slot) {
    const index_entry& entry = from.entries[slot];
    const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
    if (value == index_value::empty) continue;
    ++report.used;
    if (value == index_value::deleted) continue;
    claims[count] = {{entry.hi.load(std::memory_order_relaxed), entry.lo.load(std::memory_order_relaxed)}, value};
    slots[count] = slot;
    if (++count == claims_at_once) settle();
  }
  settle();
  return report;
}

void index_writer::reconcile(const claims_check& check) {
  for (table* each : {&old_, &current_}) {
    std::vector<slot_report> pieces((each->slots + reconciled_slots - 1) / reconciled_slots);
    run_in_parallel(pieces.size(), [&](std::size_t i) {
      const std::uint64_t first = i * reconciled_slots;
      pieces[i] = check_slots(*each, first, std::min(first + reconciled_slots, each->slots), check);
    });
    each->live = each->used = 0;
    for (const slot_report& piece : pieces) {
      each->live += piece.live;
      each->used += piece.used;
      for (const std::uint64_t slot : piece.dropped_slots) {
        shared_store(each->entries[slot].value, index_value::deleted, std::memory_order_release, "index.dropped"_point);
      }
    }
  }
  cursor_ = 0;
  if (migrating()) finish_migration();
}

void index_writer::reconcile(const std::function<bool(const block_key&, std::uint64_t)>& is_valid) {
  reconcile([&](std::span<const index_claim> claims, std::span<std::uint8_t> valid) {
    for (std::size_t i = 0; i < claims.size(); ++i) valid[i] = is_valid(claims[i].key, claims[i].value) ? 1 : 0;
  });
}

result<void> index_writer::start_table(std::uint64_t slots) {
  // In front of the current table if there is room, else behind it: so an index that is rewritten again and again stays
  // within the address space of three tables.
  const std::uint64_t bytes = table_bytes(slots);
  std::uint64_t offset = first_offset;
  if (current_.entries != nullptr && offset + bytes > current_.offset) {
    offset = current_.offset + table_bytes(current_.slots);
  }
  std::byte* entries = memory_.tables.reach(offset, bytes);
  if (entries == nullptr) {
    return fail(error_code::limit_exceeded, "the index of an instance cannot grow beyond its address space");
  }
  table next;
  next.number = static_cast<std::uint8_t>((current_.number + 1U) % header().tables.size());
  if (current_.number == no_table) next.number = 0;
  next.entries = reinterpret_cast<index_entry*>(entries);
  next.slots = slots;
  next.offset = offset;
  memory_.file.punch(offset, bytes, "index.table_punched"_point);  // a killed worker may have left entries here
  index_table& place = header().tables[next.number];
  shared_store(place.offset, offset, std::memory_order_relaxed, "index.table_offset"_point);
  shared_store(place.slots, slots, std::memory_order_release, "index.table_slots"_point);
  old_ = current_;
  current_ = next;
  cursor_ = 0;
  publish_state();
  return {};
}

void index_writer::publish_state() noexcept {
  ++generation_;
  shared_store(header().state, pack_state(generation_, old_.number, current_.number), std::memory_order_release,
               "index.state"_point);
}

void index_writer::finish_migration() {
  migrate(old_.slots);
}

void index_writer::migrate(std::uint64_t steps) {
  for (; migrating() && steps > 0; --steps, ++cursor_) {
    if (cursor_ >= old_.slots) {
      const table done = old_;
      old_ = {};
      publish_state();
      memory_.file.punch(done.offset, table_bytes(done.slots), "index.old_table_punched"_point);
      return;
    }
    index_entry& entry = old_.entries[cursor_];
    const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
    if (!index_value::holds_block(value)) continue;
    const block_key key{entry.hi.load(std::memory_order_relaxed), entry.lo.load(std::memory_order_relaxed)};
    put_in(current_, key, value);
    erase_in(old_, entry);
  }
  if (migrating() && cursor_ >= old_.slots) migrate(1);
}

result<void> index_writer::make_room() {
  if (migrating()) {
    migrate(steps_per_operation);
    if (current_.used < fill_limit(current_.slots)) return {};
    finish_migration();
  }
  if (current_.used < fill_limit(current_.slots)) return {};
  // The load is at most one half afterwards; when most of the used slots are deleted ones the new table is smaller, but
  // not by more than half: the old one must be emptied, a few steps an operation, before the new one is full.
  return start_table(std::max(current_.live * 2, current_.slots / 2) + index_min_slots);
}

result<void> index_writer::insert(const block_key& key, std::uint64_t value) {
  // Without address space for a larger table the present one is filled up: slower, but nothing is lost.
  if (auto ok = make_room(); !ok && current_.used + 1 >= current_.slots && locate(current_, key) == nullptr) return ok;
  if (migrating()) {
    if (index_entry* before = locate(old_, key)) {
      put_in(current_, key, value);
      erase_in(old_, *before);
      return {};
    }
  }
  put_in(current_, key, value);
  return {};
}

void index_writer::erase(const block_key& key) {
  if (migrating()) {
    migrate(steps_per_operation);
    if (index_entry* entry = migrating() ? locate(old_, key) : nullptr) erase_in(old_, *entry);
  }
  if (index_entry* entry = locate(current_, key)) erase_in(current_, *entry);
}

result<void> index_writer::reserve(std::uint64_t n) {
  if (migrating()) finish_migration();
  if (n + current_.used < fill_limit(current_.slots)) return {};
  const auto slots = std::max(index_min_slots, (n + current_.live) * 3 / 2 + index_min_slots);
  if (auto ok = start_table(slots); !ok) return ok;
  finish_migration();
  return {};
}

result<void> index_writer::make_room_for(std::uint64_t n) const {
  // See start_table(): in front of a table lies at most one of its own size, and behind it the next one.
  const std::uint64_t largest = table_bytes(std::max(2 * n + 2 * index_min_slots, current_.slots));
  const std::uint64_t bytes = std::min(3 * largest, index_area_bytes - first_offset);
  if (memory_.tables.reach(first_offset, bytes) != nullptr) return {};
  return fail(error_code::limit_exceeded, "no address space for an index of " + std::to_string(n) + " blocks");
}

bool index_writer::put_in(table& target, const block_key& key, std::uint64_t value) noexcept {
  std::uint64_t slot = index_reader::home_slot(key, target.slots);
  index_entry* reusable = nullptr;
  for (std::uint64_t probes = 0; probes < target.slots; ++probes) {
    index_entry& entry = target.entries[slot];
    const std::uint64_t present = entry.value.load(std::memory_order_relaxed);
    if (present == index_value::deleted) {
      if (reusable == nullptr) reusable = &entry;
    } else if (present == index_value::empty) {
      if (reusable == nullptr) {
        reusable = &entry;
        ++target.used;
      }
      break;
    } else if (same_key(entry, key)) {
      shared_store(entry.value, value, std::memory_order_release, "index.replaced"_point);
      return true;
    }
    if (++slot == target.slots) slot = 0;
  }
  if (reusable == nullptr) return false;  // cannot happen below the fill limit
  // The value is 0 or `deleted` here, so no reader takes the key while it changes.
  store_fence();
  shared_store(reusable->hi, key.hi, std::memory_order_relaxed, "index.key_high"_point);
  shared_store(reusable->lo, key.lo, std::memory_order_relaxed, "index.key_low"_point);
  shared_store(reusable->value, value, std::memory_order_release, "index.inserted"_point);
  ++target.live;
  return true;
}

index_entry* index_writer::locate(const table& table, const block_key& key) noexcept {
  std::uint64_t slot = index_reader::home_slot(key, table.slots);
  for (std::uint64_t probes = 0; probes < table.slots; ++probes) {
    index_entry& entry = table.entries[slot];
    const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
    if (value == index_value::empty) return nullptr;
    if (value != index_value::deleted && same_key(entry, key)) return &entry;
    if (++slot == table.slots) slot = 0;
  }
  return nullptr;
}

void index_writer::erase_in(table& table, index_entry& entry) noexcept {
  shared_store(entry.value, index_value::deleted, std::memory_order_release, "index.erased"_point);
  --table.live;
}

}  // namespace cenote::memory
