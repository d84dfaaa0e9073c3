#include "services/indexer/forest/forest_parts.hpp"

#include "core/random_number.hpp"

namespace cenote::indexer {

forest_parts::forest_parts(std::size_t memory, std::size_t members, std::uint64_t secret)
    : seed(secret != 0 ? secret : random_number()),
      budget(memory),
      retired(budget),
      holders(retired, members, seed),
      links(retired, holders.words()),
      models(retired, seed),
      sets(retired, holders, std::clamp<std::size_t>(memory / 64, 4096, std::size_t{1} << 26), seed),
      blocks(budget),
      names(retired, blocks, seed),
      heads(retired, blocks.most_runs()) {
  retired.set_reuse(
      this, [](void* owner, const retired_thing& thing) noexcept { static_cast<forest_parts*>(owner)->reuse(thing); });
}

forest_parts::~forest_parts() {
  for (std::uint32_t i = 0; i < blocks.run_bound(); ++i) {
    const span_word spans(blocks.run(i).spans.load(std::memory_order_relaxed));
    budget.release(spans.memory(), spans.bytes());
  }
  retired.end();
}

void forest_parts::reclaim() noexcept {
  if (retired.size() > 0) retired.reclaim();
}

void forest_parts::reuse(const retired_thing& thing) noexcept {
  budget.release(thing.memory, thing.bytes);
  switch (thing.kind) {
    case retired_kind::memory: break;
    case retired_kind::extent: blocks.release({thing.number, static_cast<std::uint32_t>(thing.extra)}); break;
    case retired_kind::run: blocks.reuse_run(thing.number); break;
    case retired_kind::set: sets.reuse(thing.number); break;
    case retired_kind::holder: holders.reuse_holder(thing.number); break;
    case retired_kind::member: holders.reuse_member(thing.number); break;
  }
}

}  // namespace cenote::indexer
