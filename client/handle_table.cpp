#include "client/handle_table.hpp"

#include <string>
#include <utility>

namespace cenote::client {

namespace {

constexpr std::size_t most_attempts = 4096;  // on places that are in use: sixteen chunks more are made meanwhile

const char* noun_of(handle_kind kind) noexcept {
  switch (kind) {
    case handle_kind::session: return "session";
    case handle_kind::prefetch: return "prefetch";
    case handle_kind::rank_group: return "group of ranks";
    case handle_kind::device: return "device";
    case handle_kind::stream: return "stream";
    case handle_kind::event: return "event";
    case handle_kind::indexer: return "indexer";
    case handle_kind::indexer_reader: return "reader of an indexer";
  }
  return "handle";
}

}  // namespace

handle_table& handle_table::instance() noexcept {
  static constinit handle_table table;  // trivially destroyed: calls may come at exit
  return table;
}

handle_table::chunk& handle_table::chunk_at(std::size_t number) {
  std::atomic<chunk*>& pointer = chunks_[number];
  chunk* existing = pointer.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  auto made = std::make_unique<chunk>();
  if (pointer.compare_exchange_strong(existing, made.get(), std::memory_order_acq_rel)) existing = made.release();
  return *existing;
}

/// The search goes round, so that no generation is used up soon, and makes a chunk for each that was full.
result<handle_table::reserved_handle> handle_table::reserve(handle_kind kind) {
  std::size_t size = 0;
  while (size < chunks_.size() && chunks_[size].load(std::memory_order_acquire) != nullptr) ++size;
  for (std::size_t attempt = 0; attempt < most_attempts; ++attempt) {
    if (attempt % chunk_places == 0 && (attempt > 0 || size == 0) && size < chunks_.size()) chunk_at(size++);
    const std::size_t slot = first_.fetch_add(1, std::memory_order_relaxed) % (size * chunk_places);
    handle_place& place = chunk_at(slot / chunk_places)[slot % chunk_places];
    const auto generation = place.gate.reserve();
    if (!generation) continue;
    const auto handle =
        std::uintptr_t{*generation} << generation_shift | slot << slot_shift | static_cast<std::uintptr_t>(kind);
    return reserved_handle{&place, handle};
  }
  return fail(error_code::limit_exceeded, "this process has too many handles that were not freed");
}

void handle_table::publish(const reserved_handle& reserved, std::unique_ptr<handle_object> object) noexcept {
  reserved.place->object = std::move(object);
  reserved.place->gate.open();
}

/// Before the gate admits the next generation: the object's end is a call's last step.
void handle_table::remove(handle_place& place) noexcept {
  place.object.reset();
  place.gate.renew();
}

error handle_table::refusal(std::uintptr_t handle, handle_kind kind) {
  const std::string noun = noun_of(kind);
  if (handle == 0) return {error_code::invalid_argument, noun + " is a null pointer"};
  if ((handle & kind_mask) == static_cast<std::uintptr_t>(kind))
    return {error_code::closed, "the " + noun + " was freed"};
  return {error_code::invalid_argument, "this is the handle of no " + noun};
}

}  // namespace cenote::client
