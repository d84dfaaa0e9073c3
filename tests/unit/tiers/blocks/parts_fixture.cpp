#include "tests/unit/tiers/blocks/parts_fixture.hpp"

#include <algorithm>

namespace cenote::blocks::testing {

using memory::block_ref;

bare_parts::bare_parts(store_options with) : of(std::move(with), memory::record_table::create().value()) {}

instance& bare_parts::add(const std::string& id, const std::string& group) {
  using memory::shared_file;
  auto index = memory::index_writer::create(shared_file::create("test-index", memory::index_segment_bytes).value());
  auto versions =
      memory::version_table::create(shared_file::create("test-versions", memory::version_table::segment_bytes).value());
  const instance_number number = next_instance_++;
  of.table.add_instance(number, spec_of(id, 4096, 1, group), std::move(index).value(), std::move(versions).value(), now)
      .value();
  pump();
  return *of.all.instances.at(number);
}

session& bare_parts::attach(instance& to, std::uint32_t uid) {
  constexpr std::uint32_t pins = 16;
  auto made = memory::segment::create("test-session", memory::session_memory::segment_bytes(pins)).value();
  sessions_.push_back(std::make_unique<memory::segment>(std::move(made)));
  const session_number number = next_session_++;
  const auto view = memory::session_memory::create(*sessions_.back(), number, pins);
  of.attached.add_session(number, to.number, view, uid).value();
  return *of.all.sessions.at(number);
}

std::size_t bare_parts::pump() {
  std::size_t made = 0;
  for (slab_request& each : of.space.take_requests()) {
    if (each.what != slab_request::kind::create) continue;
    of.space.add_slab(each.slab, make_slab_memory(each.slab, false, -1).value());
    ++made;
  }
  return made;
}

block_ref bare_parts::blank(instance& instance) {
  block_ref ref;
  while (of.allocate.allocate(pool_in(instance), ref, 1, now) == allocation::wait) pump();
  return ref;
}

block_ref bare_parts::present(instance& instance, std::uint64_t key) {
  const block_ref ref = blank(instance);
  of.blocks.publish(instance, *slab_of(instance, ref), ref, key_of(key), now);
  of.order.enter_order(pool_in(instance), record_of(instance, ref), now);
  return ref;
}

std::optional<block_ref> bare_parts::find(const instance& instance, std::uint64_t key) const {
  const full_key full = key_of(key);
  const block_key name = reduce_key(full.view(), 0);
  const auto ref = of.all.find_present(instance, name, full, nullptr);
  if (!ref) return std::nullopt;
  const std::uint64_t version = instance.versions.version(version_index_of(*slab_of(instance, *ref), *ref));
  return memory::index_value::matches(instance.index.find(name), version) ? ref : std::nullopt;
}

memory::block_state bare_parts::state_of(const instance& instance, block_ref ref) const {
  return of.all.record_of(*slab_of(instance, ref), ref).state();
}

void bare_parts::pin(session& reader, block_ref ref, std::uint32_t slot) {
  auto& used = reader.memory.header().pin_high_water;
  used.store(std::max<std::uint64_t>(used.load(), slot + 1));
  reader.memory.pin(slot).store(ref.bits);
}

void bare_parts::unpin(session& reader, std::uint32_t slot) {
  reader.memory.pin(slot).store(0);
}

std::uint32_t bare_parts::record_of(const instance& instance, block_ref ref) const {
  return slab_of(instance, ref)->what.first_record + ref.block();
}

}  // namespace cenote::blocks::testing
