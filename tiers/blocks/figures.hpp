// Tables of what the DRAM tier's reports show beside its counters (tiers/blocks/counters.hpp).
#pragma once

#include "core/figure.hpp"
#include "tiers/blocks/reserve.hpp"
#include "tiers/blocks/types.hpp"

namespace cenote {

template <>
struct figure_table<blocks::store_status> {
  using all = blocks::store_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr std::string_view blocks = "Blocks, by what they are in.";
  static constexpr auto rows = std::to_array<figure<all>>({
      {"dram.capacity", "cenote_dram_capacity_bytes", gauge, "bytes", "Memory that slabs may take.", &all::capacity},
      {"dram.assigned", "cenote_dram_assigned_bytes", gauge, "bytes", "Memory of slabs.", &all::assigned},
      {"dram.cached", "cenote_dram_cached_bytes", gauge, "bytes", "Memory of blocks that are hits.", &all::cached},
      {"dram.used", "cenote_dram_used_bytes", gauge, "bytes", "Memory of blocks in use.", &all::used},
      {"dram.slabs", "", gauge, "slabs", "Slabs of all instances.", &all::slabs},
      {"dram.writing_bytes", "cenote_dram_writing_bytes", gauge, "bytes", "On their way to the tier below.",
       &all::writing_bytes},
      {"dram.loading_bytes", "cenote_dram_loading_bytes", gauge, "bytes", "On their way from the tier below.",
       &all::loading_bytes},
      {"dram.blocks.present", "cenote_dram_blocks", gauge, "blocks", blocks, &all::present, {"state", "present"}},
      {"dram.blocks.granted", "cenote_dram_blocks", gauge, "blocks", blocks, &all::granted, {"state", "granted"}},
      {"dram.blocks.pending", "cenote_dram_blocks", gauge, "blocks", blocks, &all::pending, {"state", "pending"}},
      {"dram.blocks.zombie", "cenote_dram_blocks", gauge, "blocks", blocks, &all::zombie, {"state", "zombie"}},
      {"dram.blocks.quarantined",
       "cenote_dram_blocks",
       gauge,
       "blocks",
       blocks,
       &all::quarantined,
       {"state", "quarantined"}},
      {"dram.blocks.loading", "cenote_dram_blocks", gauge, "blocks", blocks, &all::loading, {"state", "loading"}},
      {"dram.blocks.free", "cenote_dram_blocks", gauge, "blocks", blocks, &all::free, {"state", "free"}},
      {"prefetch.held_bytes", "cenote_prefetch_held_bytes", gauge, "bytes",
       "Kept from eviction until clients take it over.", &all::held_bytes},
      {"dram.copies", "cenote_dram_copy_bytes", gauge, "bytes",
       "Memory of blocks that belong to other nodes, which have them.", &all::copy_bytes},
      {"dram.hosted", "cenote_dram_hosted_bytes", gauge, "bytes", "Memory of blocks that other nodes stored here.",
       &all::hosted_bytes},
      {"handover.published", "cenote_handover_published", gauge, "requests",
       "Requests whose blocks are published for others to follow.", &all::published},
      {"handover.published_keys", "cenote_handover_published_keys", gauge, "blocks", "Their blocks.",
       &all::published_keys},
      {"handover.followers", "cenote_handover_followers", gauge, "followers",
       "Who waits for blocks of requests here, on this node and on others.", &all::followers},
  });
};

template <>
struct figure_table<blocks::populate_status> {
  using all = blocks::populate_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"dram.populate.bytes", "cenote_dram_populated_bytes", gauge, "bytes",
       "Memory of slabs, and ready for slabs, that is touched.", &all::bytes},
      {"dram.populate.total", "cenote_dram_populate_total_bytes", gauge, "bytes",
       "What there is of it when all is touched.", &all::total},
      {"dram.populate.ready", "cenote_dram_ready_bytes", gauge, "bytes", "Touched, and no slab yet.", &all::ready},
  });
};

template <>
struct figure_table<blocks::instance_status> {
  using all = blocks::instance_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto counter = figure_kind::counter;
  static constexpr std::string_view looked_up_blocks =
      "Keys that an instance's sessions looked up: `match` asks what is there, `read` pins or copies it.";
  static constexpr std::string_view found_blocks = "Of those, the ones that were in DRAM, or on the session's device.";
  static constexpr std::string_view looked_up_tokens = "Tokens of the keys that an instance's sessions looked up.";
  static constexpr std::string_view found_tokens = "Of those, the ones whose blocks were in DRAM.";
  static constexpr figure_label match{"call", "match"}, read{"call", "read"};
  static constexpr auto rows = std::to_array<figure<all>>({
      {"instances[].blocks", "cenote_instance_blocks", gauge, "blocks", "Blocks of an instance in DRAM.",
       &all::present},
      {"instances[].bytes", "cenote_instance_bytes", gauge, "bytes", "Memory of an instance's slabs.", &all::bytes},
      {"instances[].sessions", "cenote_instance_sessions", gauge, "sessions", "Sessions of an instance.",
       &all::sessions},
      {"instances[].pinned", "cenote_instance_pinned_blocks", gauge, "blocks",
       "Pins that an instance's sessions hold now.", &all::pinned},
      {"instances[].looked_up.match", "cenote_instance_looked_up_blocks_total", counter, "blocks", looked_up_blocks,
       &all::match_keys, match},
      {"instances[].looked_up.read", "cenote_instance_looked_up_blocks_total", counter, "blocks", looked_up_blocks,
       &all::read_keys, read},
      {"instances[].found.match", "cenote_instance_found_blocks_total", counter, "blocks", found_blocks,
       &all::match_resident, match},
      {"instances[].found.read", "cenote_instance_found_blocks_total", counter, "blocks", found_blocks,
       &all::read_resident, read},
      {"instances[].found_lower", "cenote_instance_found_lower_blocks_total", counter, "blocks",
       "Keys of calls that ask what is there which tiers below alone had, as far as the calls knew.",
       &all::match_lower},
      {"instances[].looked_up_tokens.match", "cenote_instance_looked_up_tokens_total", counter, "tokens",
       looked_up_tokens, &all::match_tokens, match},
      {"instances[].looked_up_tokens.read", "cenote_instance_looked_up_tokens_total", counter, "tokens",
       looked_up_tokens, &all::read_tokens, read},
      {"instances[].found_tokens.match", "cenote_instance_found_tokens_total", counter, "tokens", found_tokens,
       &all::match_resident_tokens, match},
      {"instances[].found_tokens.read", "cenote_instance_found_tokens_total", counter, "tokens", found_tokens,
       &all::read_resident_tokens, read},
      {"instances[].found_lower_tokens", "cenote_instance_found_lower_tokens_total", counter, "tokens",
       "Tokens of the keys that tiers below alone had.", &all::match_lower_tokens},
      {"instances[].free", "", gauge, "blocks", "Blocks of its slabs that are free.", &all::free},
      {"instances[].slabs", "", gauge, "slabs", "Its slabs.", &all::slabs},
      {"instances[].pending", "", gauge, "blocks", "Blocks that are being written part by part.", &all::pending},
      {"instances[].zombie", "", gauge, "blocks", "Blocks that are gone but for those who still read them.",
       &all::zombie},
      {"instances[].quarantined", "", gauge, "blocks", "Blocks that somebody may still write.", &all::quarantined},
      {"instances[].index_slots", "", gauge, "entries", "Entries that its index has room for.", &all::index_slots},
      {"instances[].index_entries", "", gauge, "entries", "Entries of its index.", &all::index_entries},
  });
};

template <>
struct figure_table<blocks::account_status> {
  using all = blocks::account_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto counter = figure_kind::counter;
  static constexpr std::string_view found_blocks =
      "Of those, the ones that were in DRAM or on the session's device, and the ones that tiers below alone had.";
  static constexpr std::string_view found_tokens = "Tokens of the keys that were found, by tier.";
  static constexpr figure_label dram{"tier", "dram"}, lower{"tier", "lower"};
  static constexpr auto rows = std::to_array<figure<all>>({
      {"groups[].quota", "cenote_group_quota_bytes", gauge, "bytes", "Most memory of an instance group, 0: no limit.",
       &all::quota},
      {"groups[].used", "cenote_group_used_bytes", gauge, "bytes", "Memory of an instance group.", &all::used},
      {"groups[].kept", "cenote_group_kept_bytes", gauge, "bytes", "Memory of an instance group's kept blocks.",
       &all::kept},
      {"groups[].reserved", "cenote_group_reserved_bytes", gauge, "bytes",
       "Memory of blocks that are being written part by part, or set aside.", &all::reserved},
      {"groups[].wrong_blocks", "cenote_group_wrong_blocks_total", figure_kind::counter, "blocks",
       "Blocks of an instance group that were dropped, since their bytes were not those of their sums.", &all::wrong},
      {"groups[].looked_up", "cenote_group_looked_up_blocks_total", counter, "blocks",
       "Keys of calls that ask what is there, of all instances of a group.", &all::lookups},
      {"groups[].found.dram", "cenote_group_found_blocks_total", counter, "blocks", found_blocks, &all::hits, dram},
      {"groups[].found.lower", "cenote_group_found_blocks_total", counter, "blocks", found_blocks, &all::lower_hits,
       lower},
      {"groups[].looked_up_tokens", "cenote_group_looked_up_tokens_total", counter, "tokens", "Tokens of those keys.",
       &all::lookup_tokens},
      {"groups[].found_tokens.dram", "cenote_group_found_tokens_total", counter, "tokens", found_tokens,
       &all::hit_tokens, dram},
      {"groups[].found_tokens.lower", "cenote_group_found_tokens_total", counter, "tokens", found_tokens,
       &all::lower_hit_tokens, lower},
  });
};

template <>
struct figure_table<blocks::session_status> {
  using all = blocks::session_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"sessions[].pins", "", gauge, "blocks", "Blocks that it has pinned.", &all::pins},
      {"sessions[].looked_up.match", "", counter, "blocks", "Keys that it asked for, without reading their blocks.",
       &all::match_keys},
      {"sessions[].looked_up.read", "", counter, "blocks", "Keys of blocks that it asked to pin or to copy.",
       &all::read_keys},
      {"sessions[].found.match", "", counter, "blocks", "Of the keys that it asked for, those that were in DRAM.",
       &all::match_resident},
      {"sessions[].found.read", "", counter, "blocks", "Of the keys to pin or to copy, those that were.",
       &all::read_resident},
      {"sessions[].found_lower", "", counter, "blocks",
       "Of the keys that it asked for, those that tiers below alone had, as far as it knew.", &all::match_lower},
      {"sessions[].grants", "", gauge, "blocks", "Blank blocks in its hands.", &all::grants},
      {"sessions[].writing", "", gauge, "blocks", "Blocks that it writes part by part.", &all::writing},
      {"sessions[].wrong_blocks", "", gauge, "blocks", "Blocks of it whose bytes were not those of their sums.",
       &all::wrong},
  });
};

}  // namespace cenote
