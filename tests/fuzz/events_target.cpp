// Batches of KV events from engines and nodes, and the keys of what they store.
#include <algorithm>
#include <array>

#include "services/indexer/events/event_adapter.hpp"
#include "services/indexer/events/msgpack_reader.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/msgpack_writer.hpp"

namespace {

using namespace cenote::indexer;
using cenote::fuzz::bytes_view;
using cenote::test::msgpack_writer;

/// All views of an event, which the address sanitizer watches, and its keys.
void use(const event_batch& batch, const engine_event& event) {
  static const token_processor processors[] = {{key_chain::xxh3, "seed"}, {key_chain::fnv64_cbor, "42"}};
  std::uint64_t sum = batch.medium_of(event).size();
  for (const std::uint64_t hash : batch.hashes_of(event)) sum += hash;
  for (const std::uint64_t hash : batch.leading_hashes_of(event)) sum += hash;
  const key_space space{.model = "model", .lora_name = batch.lora_name_of(event), .block_tokens = event.block_tokens};
  const token_run run{
      .tokens = batch.tokens_of(event), .extra_keys = batch.extra_keys_of(event), .parent = event.parent};
  std::array<std::uint64_t, 64> keys{};
  for (const token_processor& each : processors) sum += each.write_keys(run, space, keys);
  if (!run.extra_keys.blocks.empty() && run.extra_keys.blocks.size() != event.hashes.size) std::abort();
  for (std::size_t block = 0; block < run.extra_keys.blocks.size(); ++block) {
    const auto list = run.extra_keys.list(block);
    if (item_size(list) != list.size()) std::abort();  // each one is whole
  }
  static volatile std::uint64_t result;
  result = sum;
}

template <event_engine Engine>
void decode_batch(bytes_view input) {
  static event_batch batch;
  const event_adapter adapter(Engine);
  if (!adapter.parse("kv@pod@model", input, batch)) {
    if (!batch.events.empty() || !batch.hashes.empty()) std::abort();
    return;
  }
  for (const engine_event& event : batch.events) use(batch, event);
  const std::size_t events = batch.events.size();
  const auto faults = batch.faults;
  if (!adapter.parse("kv@pod@model", input, batch) || batch.events.size() != events || batch.faults != faults)
    std::abort();
}

/// A value that is skipped ends where its parts do.
void skip_value(bytes_view input) {
  msgpack_reader reader(input);
  static_cast<void>(reader.skip());
  if (reader.position() > input.size()) std::abort();
}

constexpr std::array<cenote::fuzz::codec, 5> codecs{
    decode_batch<event_engine::automatic>, decode_batch<event_engine::vllm>, decode_batch<event_engine::sglang>,
    decode_batch<event_engine::cenote>, skip_value};

void write_seeds() {
  const std::vector<std::byte> key(32, std::byte{7});
  msgpack_writer maps;
  maps.array(3).floating(1).array(3).map(11).text("type").text("BlockStored").text("block_hashes").array(1).bytes(key);
  maps.text("parent_block_hash").integer(9).text("token_ids").integers({1, 200, 60'000, 150'000});
  maps.text("block_size")
      .integer(4)
      .text("medium")
      .text("CPU")
      .text("lora_name")
      .text("sql")
      .text("cache_salt")
      .text("s");
  maps.text("extra_keys").array(1).array(3).text("sql").array(2).text("x").integer(3).map(1).text("k").floating(0.5);
  maps.text("kv_cache_spec_kind").text("sliding_window").text("kv_cache_spec_sliding_window").integer(128);
  maps.map(3).text("type").text("BlockRemoved").text("block_hashes").integers({7}).text("group_idx").integer(1);
  maps.map(1).text("type").text("AllBlocksCleared").integer(0);
  msgpack_writer arrays;
  arrays.array(2).nil().array(2).array(8).text("BlockStored").integers({1, 2}).nil().integers({1, 2, 3, 4}).integer(2);
  arrays.integer(7).text("DISK").map(1).text("cache_salt").text("tenant");
  arrays.array(3).text("BlockRemoved").integers({1}).text("NOWHERE");
  msgpack_writer batch_map;
  batch_map.map(3).text("ts").floating(2).text("events").array(1).array(2).text("Unknown").integers({1});
  batch_map.text("data_parallel_rank").integer(3);
  for (std::size_t codec = 0; codec < codecs.size(); ++codec) {
    for (const msgpack_writer* each : {&maps, &arrays, &batch_map}) cenote::fuzz::write_seed(codec, each->data());
  }
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
