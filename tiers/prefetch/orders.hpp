// What the planner of prefetches and the DRAM tier say to each other: batches of keys, never one block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/block_key.hpp"
#include "memory/prefetch_terms.hpp"
#include "tiers/transfer.hpp"

namespace cenote::prefetch {

using key_list = std::shared_ptr<const std::vector<full_key>>;

/// Where a key is, seen from the DRAM tier.
enum class place : std::uint8_t {
  present,  ///< in DRAM
  loading,  ///< on its way up
  below,    ///< by the hints, in a lower tier
  absent,   ///< nowhere, or a session writes it
};

/// What a session's ring said, in its order.
struct word {
  enum class kind : std::uint8_t { wish, stop, end };
  kind what = kind::wish;
  std::uint64_t session = 0;
  std::uint32_t request = 0;
  std::uint32_t chain = 0;  ///< stop, end: which
  // wish only:
  memory::prefetch_terms terms;
  std::uint32_t instance = 0;  ///< the DRAM tier's number
  std::uint32_t group = 0;
  std::uint32_t tokens_per_block = 0;
  std::uint64_t stride = 0;  ///< bytes of a block
  std::vector<full_key> keys;
  std::vector<place> places;  ///< of each key, when the tier read the wish
  bool too_long = false;      ///< a part of the chain was left out, since too many keys wait: it is refused
};

/// What the planner wants of the tier. Carried out in order.
struct order {
  enum class kind : std::uint8_t {
    load,     ///< bring keys [first, first + count) up, in order, up to the first that cannot be
    finish,   ///< say how long the present prefix is; with `hold`, keep it; else let go of all that the job holds
    release,  ///< let go of all that the job holds; no answer
  };
  kind what = kind::load;
  std::uint64_t job = 0;
  std::uint64_t session = 0;  ///< 0: nobody's, nothing is held
  std::uint32_t instance = 0;
  std::uint32_t group = 0;
  bool hold = false;
  key_list keys;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// What became of the wish to bring a block up.
enum class load_state : std::uint8_t {
  present,   ///< it is here already
  loading,   ///< on its way, for this wish or an older one
  absent,    ///< the tier below has no copy
  busy,      ///< a session writes it, or its key collides: nothing is loaded
  wait,      ///< no room at the moment; the tier says when there is some
  no_space,  ///< nothing can be evicted for it
};
struct load_answer {
  load_state state = load_state::present;
  std::uint64_t token = 0;  ///< of a load under way; a later load has a larger one
};

/// The tier's answer to a load or finish.
struct reply {
  order::kind what = order::kind::load;
  std::uint64_t job = 0;
  std::size_t first = 0;
  std::vector<load_answer> loads;  ///< load: of keys from `first` on; all but the last are present or loading
  std::size_t length = 0;          ///< finish: blocks
};

}  // namespace cenote::prefetch
