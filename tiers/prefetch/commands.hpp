// Requests of sessions, commands of the planner to the block tier, and their results: batches of keys, never one block.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/block_key.hpp"
#include "core/handover.hpp"
#include "memory/prefetch_terms.hpp"
#include "memory/session_memory.hpp"
#include "tiers/prefetch/throughput.hpp"
#include "tiers/transfer.hpp"

namespace cenote::prefetch {

using key_list = std::shared_ptr<const std::vector<full_key>>;

/// Where a key is, seen from the DRAM tier.
enum class place : std::uint8_t {
  present,  ///< in DRAM
  loading,  ///< on its way up
  near,     ///< in a tier below, by its hints
  far,      ///< in a tier below, by its answer
  unasked,  ///< in no tier that has hints; one that has none may have it
  absent,   ///< nowhere, or a session writes it
};

/// A key's place, and for `loading`, `near` and `far` the tier below that has it.
struct spot {
  place what = place::absent;
  std::uint8_t edge = 0;

  [[nodiscard]] bool is_below() const noexcept { return what == place::near || what == place::far; }
  bool operator==(const spot&) const = default;
};

/// What a session asks of the planner, in the order of its ring.
struct request {
  enum class kind : std::uint8_t {
    start,   ///< bring a chain up
    locate,  ///< say how far it reaches, tiers that must be asked included; nothing is loaded
    stop,    ///< best_effort: the engine is ready, what is there is enough
    end,     ///< cancel it, or let go of what it holds
    follow,  ///< bring up what a request has at another node, as it is made there
    more,    ///< … and say which keys came from `position` on, when there are some
  };
  kind what = kind::start;
  std::uint64_t session = 0;
  std::uint32_t number = 0;      ///< of the request in the session's ring
  std::uint32_t chain = 0;       ///< stop, end: which
  nanoseconds patience{};        ///< locate: how long tiers may take that are asked; follow: how long it takes
  memory::prefetch_terms terms;  ///< start
  // start, locate:
  std::uint32_t instance = 0;  ///< the DRAM tier's number
  std::uint32_t group = 0;
  share_holder holder{};  ///< of the session
  std::uint32_t tokens_per_block = 0;
  std::uint64_t stride = 0;  ///< bytes of a block
  std::vector<full_key> keys;
  std::vector<spot> places;           ///< of each key, when the tier read the request
  std::bitset<max_edges> asks;        ///< the tiers below that may have what is `unasked`
  handover::request_name followed{};  ///< follow
  std::string node{};                 ///< … at
  std::uint64_t position = 0;         ///< more
  bool too_long = false;              ///< a part of the chain was left out, since too many keys wait: it is refused
};

/// An answer for a session's completion ring.
struct answer {
  std::uint64_t session = 0;
  memory::completion completion;
};

/// What the planner has the tier do. Executed in order.
struct command {
  enum class kind : std::uint8_t {
    load,     ///< bring the keys `which` up from `edge`, in their order, up to the first that cannot be
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
  edge_number edge = 0;                ///< load: the tier below to load from, unless its hints lack the key
  std::uint32_t from = 0;              ///< … and the node to ask first: see transfer::from
  std::vector<std::uint32_t> which{};  ///< load: of `keys`, ascending
};

/// Keys that the tier below at `edge` shall say of whether it has them. on_told() takes the answer.
struct question {
  std::uint64_t number = 0;
  edge_number edge = 0;
  key_query keys;
};

/// What became of a block that a load names.
enum class load_state : std::uint8_t {
  present,   ///< it is here already
  loading,   ///< on its way, for this prefetch or an older one
  absent,    ///< the tier below has no copy
  busy,      ///< a session writes it, its key collides, or its tier is away: nothing is loaded
  wait,      ///< no space at the moment; the tier says when there is some
  no_space,  ///< nothing can be evicted for it
};
struct load_answer {
  load_state state = load_state::present;
  std::uint64_t token = 0;  ///< of a load under way; a later load has a larger one
  edge_number edge = 0;     ///< … and the tier below that it comes from
};

/// What became of a load or finish.
struct command_result {
  command::kind what = command::kind::load;
  std::uint64_t job = 0;
  edge_number edge = 0;            ///< load: of the command
  std::vector<load_answer> loads;  ///< load: of the first keys of `which`; all but the last are present or loading
  std::size_t length = 0;          ///< finish: blocks
};

}  // namespace cenote::prefetch
