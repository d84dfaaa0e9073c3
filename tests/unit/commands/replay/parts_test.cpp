#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>
#include <vector>

#include "commands/replay/content.hpp"
#include "commands/replay/options.hpp"
#include "commands/replay/partition.hpp"
#include "commands/replay/progress.hpp"
#include "commands/replay/real.hpp"
#include "commands/replay/report.hpp"
#include "commands/replay/shared_plan.hpp"
#include "commands/replay/sizes.hpp"
#include "commands/replay/summary.hpp"
#include "core/units.hpp"

namespace parts_test {

using namespace cenote;
using namespace cenote::replay;

namespace {

using ids = std::vector<std::uint64_t>;

std::vector<std::byte> block_of(std::uint64_t id, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  content(id).fill(block);
  return block;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

run_settings settings_of(std::uint32_t engines, std::uint32_t workers) {
  run_settings how;
  how.block_bytes = 4096;
  how.engines = engines;
  how.workers = workers;
  return how;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(replay_content)

BOOST_AUTO_TEST_CASE(keys_differ_between_ids) {
  std::set<block_name> seen;
  for (std::uint64_t id = 0; id < 10'000; ++id) seen.insert(key_of(id));
  BOOST_TEST(seen.size() == 10'000U);
  BOOST_CHECK(key_of(7) == key_of(7));
}

BOOST_AUTO_TEST_CASE(a_block_is_right_for_its_id_only) {
  for (const std::size_t bytes : {8U, 64U, 4096U, 4104U, 100'000U}) {
    const auto block = block_of(5, bytes);
    for (const auto how : {verify_mode::sample, verify_mode::all}) {
      BOOST_CHECK(!content(5).first_wrong(block, how));
      BOOST_CHECK(content(6).first_wrong(block, how) == 0U);
    }
    BOOST_CHECK(!content(6).first_wrong(block, verify_mode::none));
  }
}

BOOST_AUTO_TEST_CASE(any_wrong_byte_is_found_and_its_word_named) {
  auto block = block_of(9, 9'000);
  for (std::size_t at = 0; at < block.size(); at += 7) {
    block[at] ^= std::byte{0x40};
    BOOST_REQUIRE(content(9).first_wrong(block, verify_mode::all) == at / 8 * 8);
    block[at] ^= std::byte{0x40};
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_was_shifted_is_wrong) {
  auto block = block_of(9, 8192);
  std::rotate(block.begin(), block.begin() + 64, block.end());
  BOOST_CHECK(content(9).first_wrong(block, verify_mode::all) == 0U);
  BOOST_CHECK(content(9).first_wrong(block, verify_mode::sample) == 0U);
}

BOOST_AUTO_TEST_CASE(a_sample_looks_at_the_first_and_the_last_line) {
  auto block = block_of(9, 1 << 20);
  block.back() ^= std::byte{1};
  BOOST_CHECK(content(9).first_wrong(block, verify_mode::sample) == block.size() - 8);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(replay_deal)

BOOST_AUTO_TEST_CASE(a_conversation_stays_on_its_engine) {
  simulation::trace of;
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    for (const std::uint64_t talk : {100U, 200U, 300U, 400U}) {
      ids blocks{0};  // all share the system prompt
      for (std::uint64_t i = 0; i < 3 + turn; ++i) blocks.push_back(talk * 1000 + i);
      of.add(turn * 1000, 512 * blocks.size(), blocks);
    }
  }
  const auto engine_of = partition(of, 2, partition_mode::conversation);
  std::vector<int> load(2, 0);
  for (std::size_t i = 0; i < engine_of.size(); ++i) {
    BOOST_REQUIRE_LT(engine_of[i], 2U);
    BOOST_TEST(engine_of[i] == engine_of[i % 4]);
    ++load[engine_of[i]];
  }
  BOOST_TEST(load[0] == load[1]);
}

BOOST_AUTO_TEST_CASE(round_robin_goes_round) {
  simulation::trace of;
  for (std::uint64_t i = 0; i < 7; ++i) of.add(0, 512, ids{1});
  BOOST_TEST(partition(of, 3, partition_mode::round_robin) == (std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 0}));
}

BOOST_AUTO_TEST_CASE(each_node_has_engines_of_its_own_and_conversations_are_bound_within_it) {
  simulation::trace of;
  std::vector<std::uint32_t> node_of;
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    for (const std::uint64_t talk : {100U, 200U, 300U, 400U, 500U, 600U}) {
      ids blocks{0};
      for (std::uint64_t i = 0; i < 3 + turn; ++i) blocks.push_back(talk * 1000 + i);
      of.add(turn * 1000, 512 * blocks.size(), blocks);
      node_of.push_back(static_cast<std::uint32_t>(talk / 100 % 3));
    }
  }
  run_settings how = settings_of(6, 1);
  how.nodes = 3;
  for (const auto mode : {partition_mode::conversation, partition_mode::round_robin}) {
    const auto engine_of = partition(of, 2, mode, node_of);
    std::set<std::uint32_t> used(engine_of.begin(), engine_of.end());
    BOOST_TEST(used.size() == 6U);
    for (std::size_t i = 0; i < engine_of.size(); ++i) {
      BOOST_TEST(how.node_of(engine_of[i]) == node_of[i]);
      if (mode == partition_mode::conversation) BOOST_TEST(engine_of[i] == engine_of[i % 6]);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(replay_board)

BOOST_AUTO_TEST_CASE(another_mapping_sees_requests_settings_and_tallies) {
  simulation::trace of;
  of.add(5'000, 1'024, ids{7, 8});
  of.add(9'000, 600, ids{7, 9});
  const auto made = shared_plan::create(settings_of(2, 3), of, std::vector<std::uint32_t>{1, 0});
  BOOST_REQUIRE(made);
  unique_fd copy(::dup(made->fd()));
  const auto seen = shared_plan::open(std::move(copy));
  BOOST_REQUIRE_MESSAGE(seen, (seen ? "" : seen.error().message()));
  BOOST_TEST(seen->settings().workers == 3U);
  BOOST_REQUIRE_EQUAL(seen->requests().size(), 2U);
  const planned_request& second = seen->requests()[1];
  BOOST_TEST(second.due_ms == 4'000U);
  BOOST_TEST(second.tokens == 600U);
  BOOST_TEST(second.engine == 0U);
  BOOST_TEST(seen->ids(second)[1] == 9U);

  seen->worker(1, 2).requests.add(3);
  seen->worker(0, 0).requests.add(4);
  seen->worker(1, 2).match.add(1'000);
  const auto sums = std::make_unique<tally>();
  made->sum(*sums);
  BOOST_TEST(sums->requests.get() == 7U);
  BOOST_TEST(sums->match.count() == 1U);
  BOOST_TEST(!seen->stopped());
  made->stop();
  BOOST_TEST(seen->stopped());
}

BOOST_AUTO_TEST_CASE(the_first_message_of_an_engine_stays_and_is_cut) {
  engine_state state;
  BOOST_TEST(shared_plan::said(state).empty());
  shared_plan::say(state, std::string(1'000, 'x'));
  shared_plan::say(state, "later");
  BOOST_TEST(shared_plan::said(state) == std::string(state.message.size(), 'x'));
}

BOOST_AUTO_TEST_CASE(hits_of_all_tiers_and_misses_are_all_blocks) {
  const auto sums = std::make_unique<tally>();
  BOOST_CHECK(!sums->wrong_sum());
  sums->blocks.add(15);
  BOOST_CHECK(sums->wrong_sum());
  sums->gpu_hits.add(5);
  sums->upper_hits.add(4);
  sums->lower_hits.add(3);
  sums->missed.add(3);
  BOOST_CHECK(has(sums->wrong_sum().value_or(""), "0 were put"));
  sums->stored.add(1);
  sums->present.add(1);
  sums->refused.add(1);
  BOOST_CHECK(!sums->wrong_sum());
  const auto all = std::make_unique<tally>();
  all->merge(*sums);
  all->merge(*sums);
  BOOST_TEST(all->gpu_hits.get() == 10U);
  BOOST_CHECK(!all->wrong_sum());
  all->upper_hits.add(1);
  BOOST_CHECK(all->wrong_sum());
  all->failed.add(1);
  BOOST_CHECK(!all->wrong_sum());
}

BOOST_AUTO_TEST_CASE(what_is_no_board_is_refused) {
  auto other = memory::segment::create("no-plan", 1 << 16);
  BOOST_REQUIRE(other);
  const auto refused = shared_plan::open(unique_fd(::dup(other->fd().get())));
  BOOST_REQUIRE(!refused);
  BOOST_CHECK(refused.error().code() == error_code::layout_mismatch);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(replay_options)

BOOST_AUTO_TEST_CASE(speed_is_a_factor_or_max) {
  BOOST_TEST(*parse_speed("max") == 0.0);
  BOOST_TEST(*parse_speed("20x") == 20.0);
  BOOST_TEST(*parse_speed("0.5x") == 0.5);
  for (const std::string_view wrong : {"", "x", "20", "0x", "-1x", "nanx", "infx", "20xx", "fast", "1e99x"}) {
    BOOST_TEST(!parse_speed(wrong).has_value(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  const auto refusal = [](const real_options& options) {
    const auto parsed = parse(options);
    BOOST_REQUIRE(!parsed);
    BOOST_CHECK(parsed.error().code() == error_code::invalid_argument);
    return parsed.error().message();
  };
  BOOST_CHECK(parse(real_options{}));
  BOOST_CHECK(has(refusal({.block_bytes = "100"}), "--block-bytes"));
  BOOST_CHECK(has(refusal({.block_bytes = "4100"}), "multiple of 8"));
  BOOST_CHECK(has(refusal({.dram = "much"}), "--dram"));
  BOOST_CHECK(has(refusal({.socket = "/x", .policy = "lru"}), "leave out --socket"));
  BOOST_CHECK(has(refusal({.prefetch_wait = "5"}), "--prefetch-wait"));
}

BOOST_AUTO_TEST_CASE(a_device_and_its_size_stand_in_one_word) {
  const auto first = parse_gpu("sim:1GiB");
  BOOST_REQUIRE(first);
  BOOST_TEST(first->device == "sim:0");
  BOOST_TEST(first->name == "sim:0");
  BOOST_TEST(first->bytes == GiB);
  BOOST_TEST(parse_gpu("sim:3:64MiB")->name == "sim:3");
  BOOST_TEST(parse_gpu("cuda:0:8GiB")->name == "cuda:0");
  BOOST_TEST(parse_gpu("GPU-0a1b:8GiB")->name == "cuda:GPU-0a1b");
  const auto faulty = parse_gpu("sim:0,fail=9:64MiB");
  BOOST_TEST(faulty->device == "sim:0,fail=9");
  BOOST_TEST(faulty->name == "sim:0");
  for (const std::string_view wrong :
       {"", "sim", "1GiB", ":1GiB", "sim:", "sim:0", "sim:0:", "cuda:1GiB", "tpu:0:1GiB"}) {
    BOOST_TEST(!parse_gpu(wrong).has_value(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_device_goes_with_one_node_of_the_replays_own) {
  const auto refusal = [](real_options options) {
    options.gpu = "sim:1GiB";
    const auto parsed = parse(options);
    BOOST_REQUIRE(!parsed);
    BOOST_CHECK(parsed.error().code() == error_code::invalid_argument);
    return parsed.error().message();
  };
  const auto parsed = parse(real_options{.gpu = "sim:1GiB"});
  BOOST_REQUIRE(parsed);
  BOOST_TEST(parsed->gpu->bytes == GiB);
  BOOST_CHECK(has(refusal({.nodes = "2"}), "leave out --nodes"));
  BOOST_CHECK(has(refusal({.socket = "/x"}), "leave out --socket"));
  BOOST_CHECK(has(refusal({.access = "in-place"}), "--access in-place"));
  BOOST_CHECK(has(refusal({.block_bytes = "2GiB"}), "--block-bytes"));
}

BOOST_AUTO_TEST_CASE(sizes_fit_the_machine_and_keep_what_was_given) {
  const machine_room large{.memory = 64 * GiB, .disk = 1000 * GiB};
  const auto all = choose_sizes(8 * GiB, MiB, 0, std::nullopt, large);
  BOOST_TEST(all.dram == 2 * GiB);
  BOOST_TEST(all.nvme > 8 * GiB);
  const auto little = choose_sizes(800 * GiB, MiB, 0, std::nullopt, {.memory = 4 * GiB, .disk = 8 * GiB});
  BOOST_TEST(little.dram == 2 * GiB);
  BOOST_TEST(little.nvme == 2 * GiB);
  BOOST_TEST(choose_sizes(800 * GiB, MiB, 0, std::nullopt, {.memory = 4 * GiB, .disk = 100 * MiB}).nvme == 0U);
  const auto given = choose_sizes(8 * GiB, MiB, 5 * MiB, 0, large);
  BOOST_TEST(given.dram == 5 * MiB);
  BOOST_TEST(given.nvme == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(replay_output)

BOOST_AUTO_TEST_CASE(progress_has_rate_and_time_left) {
  const progress_state from{.seconds = 10, .done = 100, .planned = 1'000, .bytes = 0};
  progress_state now{.seconds = 12, .done = 300, .planned = 1'000, .bytes = GiB, .hit_tokens = 1, .tokens = 4};
  BOOST_TEST(progress_text(from, now, 0) == " 30 %  300/1000 requests  100/s  0.50 GiB/s  hit 25.0 %  0:07 left");
  const auto bar = progress_text(from, now, 60);
  BOOST_TEST(bar.starts_with("[#######................."));
  BOOST_TEST(bar.size() == 59U);
  now.seconds_left = 3'700;
  BOOST_TEST(progress_text(from, now, 0).ends_with("1:01:40 left"));
  BOOST_TEST(progress_text(now, now, 0).find("nan") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_report_escapes_what_it_did_not_write) {
  replay_result of;
  of.trace = "<script>alert('x')</script>.jsonl";
  of.failures = {"engine 1 said \"<b>\" & left"};
  const auto page = report_html(of);
  BOOST_CHECK(!has(page, "<script>"));
  of.failures = {"</script><img src=x>"};
  BOOST_CHECK(!has(report_html(of), "</script><img"));
  BOOST_CHECK(has(page, "&lt;script&gt;alert(&#39;x&#39;)"));
  BOOST_CHECK(has(page, "&quot;&lt;b&gt;&quot; &amp; left"));
}

BOOST_AUTO_TEST_CASE(a_report_of_nothing_and_of_one_sample_is_whole) {
  replay_result of;
  for (int i = 0; i < 2; ++i) {
    const auto page = report_html(of);
    BOOST_CHECK(page.ends_with("</html>\n"));
    BOOST_CHECK(!has(page, "nan"));
    BOOST_CHECK(!has(page, "inf"));
    BOOST_CHECK(!has(page, "http"));
    of.timeline.push_back({.seconds = 1, .requests = 1, .blocks = 3, .upper_hits = 2});
    of.seconds = 1;
    of.capacities = {1};
    of.curves = {{"lru", {0.5}}, {"belady", {0.6}}};
  }
}

BOOST_AUTO_TEST_CASE(a_device_is_the_first_of_four_tiers_and_without_one_none_is_named) {
  replay_result of;
  of.dram_capacity = of.nvme_capacity = MiB;
  of.timeline = {{.seconds = 1, .requests = 1, .tokens = 4'096, .blocks = 8}};
  BOOST_CHECK(!has(report_html(of), "GPU"));
  BOOST_CHECK(!has(summary_text(of), "GPU"));
  BOOST_CHECK(!has(summary_json(of).dump(), "gpu"));
  std::ranges::copy(std::string_view("sim:0"), of.settings.device.begin());
  of.gpu_capacity = MiB;
  of.sums->hit_tokens.add(4'096);
  of.sums->gpu_tokens.add(512);
  of.sums->upper_tokens.add(1'024);
  const auto page = report_html(of);
  BOOST_TEST(page.find("<td>GPU</td>") < page.find("<td>DRAM</td>"));
  BOOST_TEST(page.find("<td>DRAM</td>") < page.find("<td>NVMe</td>"));
  BOOST_CHECK(has(summary_text(of), "512 from the GPU, 1024 from DRAM, 2560 from NVMe"));
  BOOST_TEST(summary_json(of).at("prefix_tokens_nvme").get<int>() == 2'560);
  BOOST_CHECK(!summary_json(of).at("bytes").contains("dram_to_engines"));
}

BOOST_AUTO_TEST_CASE(json_says_what_is_not_known_as_null) {
  const replay_result of;
  const auto json = summary_json(of);
  BOOST_CHECK(json.at("cpu").at("node_s").is_null());
  BOOST_CHECK(json.at("node").at("put_waits").is_null());
  BOOST_TEST(json.at("hit_ratio").get<double>() == 0.0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace parts_test
