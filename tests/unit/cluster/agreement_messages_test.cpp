#include "transport/peer/agreement_messages.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>
#include <random>

#include "core/text.hpp"
#include "tests/support/numbered_identity.hpp"
#include "transport/peer/network.hpp"

namespace {

using namespace cenote;
using namespace cenote::peer;

/// Every message, and what reads it.
struct group_sample {
  std::vector<std::byte> bytes;
  std::function<bool(std::span<const std::byte>)> reads;
};

constexpr group_epoch some_epoch{{77}, 3};
constexpr std::size_t name_bytes = 4 + 1 + 4 + 4;  // of group "g" of no instance group: text, uid, instance group

std::vector<group_sample> group_samples() {
  const auto reader = [](auto decode) {
    return [decode](std::span<const std::byte> bytes) { return decode(bytes).has_value(); };
  };
  const propose_lengths proposed{{"g"}, some_epoch, 9, true, "why", {{1, 2, 3}, {4, 5, 6}}};
  return {
      {encode(seek_group{{"g"}, true}), reader(decode_seek_group)},
      {encode(join_group{{"g"}, 1_identity, 4, 5, {{0, 6}, {1, 7}}}), reader(decode_join_group)},
      {encode(group_formed{{"g"}, some_epoch, {{"a", {1}, {{0, 2}}}, {"b", {3}, {{1, 4}}}}}),
       reader(decode_group_formed)},
      {encode(proposed), reader(decode_propose_lengths)},
      {encode(decided_lengths{{"g"}, some_epoch, 1, {{1, 2}, {3, 4}}, {5}}), reader(decode_group_saying)},
      {encode(lost_epoch{{"g"}, some_epoch, true, "why"}), reader(decode_group_saying)},
      {encode(refused_ranks{{"g"}, error_code::spec_mismatch, {1, 2}, "why"}), reader(decode_group_saying)},
      {encode(group_here{{"g"}, true}), reader(decode_group_here)},
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(agreement_messages)

BOOST_AUTO_TEST_CASE(what_is_encoded_is_read_again) {
  const auto seek = decode_seek_group(encode(seek_group{{"tp/0", {1001, "team"}}, true}));
  BOOST_REQUIRE(seek);
  BOOST_TEST((seek->group == group_name{"tp/0", {1001, "team"}}));
  BOOST_TEST(seek->has_first);
  const auto join = decode_join_group(encode(join_group{{"g"}, 1_identity, 4, 5, {{0, 6}, {1, 7}}}));
  BOOST_REQUIRE(join);
  BOOST_TEST(join->shared == 1_identity);
  BOOST_TEST(join->size == 4U);
  BOOST_TEST(join->turn == 5U);
  BOOST_TEST((join->ranks == std::vector<joined_rank>{{0, 6}, {1, 7}}));
  const group_formed what{{"g"}, some_epoch, {{"a", {1}, {{0, 2}}}, {"b", {3}, {{1, 4}, {2, 5}}}}};
  const auto formed = decode_group_formed(encode(what));
  BOOST_REQUIRE(formed);
  BOOST_TEST((formed->epoch == some_epoch));
  BOOST_TEST((formed->nodes == what.nodes));
  const auto proposed = decode_propose_lengths(encode(propose_lengths{{"g"}, some_epoch, 9, true, "why", {{1, 2, 3}}}));
  BOOST_REQUIRE(proposed);
  BOOST_TEST(proposed->heard_up_to == 9U);
  BOOST_TEST(proposed->is_over);
  BOOST_TEST(proposed->why == "why");
  BOOST_TEST((proposed->proposals == std::vector<proposal>{{1, 2, 3}}));
  const auto here = decode_group_here(encode(group_here{{"g"}, true}));
  BOOST_REQUIRE(here);
  BOOST_TEST(here->is_formed);
}

BOOST_AUTO_TEST_CASE(what_a_coordinator_says_is_read_again) {
  const auto decided = decode_group_saying(encode(decided_lengths{{"g"}, some_epoch, 8, {{1, 2}, {3, 4}}, {5, 6}}));
  BOOST_REQUIRE(decided);
  const auto* const numbers = std::get_if<decided_lengths>(&*decided);
  BOOST_REQUIRE(numbers != nullptr);
  BOOST_TEST(numbers->group.text == "g");
  BOOST_TEST((numbers->epoch == some_epoch));
  BOOST_TEST(numbers->first == 8U);
  BOOST_TEST((numbers->decisions == std::vector<decision>{{1, 2}, {3, 4}}));
  BOOST_TEST((numbers->too_old == std::vector<std::uint64_t>{5, 6}));
  const auto over = decode_group_saying(encode(lost_epoch{{"g"}, some_epoch, true, "why"}));
  BOOST_REQUIRE(over);
  const auto* const lost = std::get_if<lost_epoch>(&*over);
  BOOST_REQUIRE(lost != nullptr);
  BOOST_TEST(lost->wants_answer);
  BOOST_TEST(lost->why == "why");
  const auto no = decode_group_saying(encode(refused_ranks{{"g"}, error_code::spec_mismatch, {1, 2}, "why"}));
  BOOST_REQUIRE(no);
  const auto* const refused = std::get_if<refused_ranks>(&*no);
  BOOST_REQUIRE(refused != nullptr);
  BOOST_TEST((refused->code == error_code::spec_mismatch));
  BOOST_TEST((refused->lives == std::vector<std::uint64_t>{1, 2}));
}

BOOST_AUTO_TEST_CASE(a_kind_of_a_later_version_is_read_as_nothing) {
  auto bytes = encode(lost_epoch{{"g"}, some_epoch, true, "why"});
  constexpr std::size_t kind_at = name_bytes + 16;
  bytes[kind_at] = std::byte{99};
  const auto later = decode_group_saying(bytes);
  BOOST_REQUIRE(later);
  BOOST_TEST(std::holds_alternative<std::monostate>(*later));
}

BOOST_AUTO_TEST_CASE(a_node_with_a_name_that_is_not_plain_is_refused) {
  const auto formed = [](std::string name) {
    return decode_group_formed(encode(group_formed{{"g"}, some_epoch, {{std::move(name), {1}, {{0, 2}}}}}));
  };
  BOOST_TEST(formed(std::string(longest_plain_name, 'a')).has_value());
  BOOST_TEST(!formed(std::string(longest_plain_name + 1, 'a')));
  BOOST_TEST(!formed(""));
  BOOST_TEST(!formed("a\xff"));
  BOOST_TEST(!formed("a b"));
}

BOOST_AUTO_TEST_CASE(a_reason_whose_bytes_are_replaced_is_as_long_as_one_may_be_and_reads_again) {
  const auto reason = [](std::string text) {
    const auto read = decode_propose_lengths(encode(propose_lengths{{"g"}, some_epoch, 9, true, std::move(text), {}}));
    return read ? read->why : "refused";
  };
  const std::string once = reason(std::string(longest_group_reason, '\xff'));
  BOOST_TEST(once.size() <= longest_group_reason);
  BOOST_TEST(once.starts_with("\ufffd\ufffd"));
  BOOST_TEST(reason(once) == once);
}

BOOST_AUTO_TEST_CASE(a_body_that_was_cut_is_refused_and_one_that_grew_is_not) {
  for (const group_sample& each : group_samples()) {
    for (std::size_t size = 0; size < each.bytes.size(); ++size)
      BOOST_TEST(!each.reads(std::span(each.bytes).first(size)));
    auto longer = each.bytes;
    longer.resize(longer.size() + 9);
    BOOST_TEST(each.reads(longer));
  }
}

BOOST_AUTO_TEST_CASE(counts_that_cannot_be_are_refused_before_anything_is_allocated) {
  constexpr std::size_t count_at = name_bytes + sizeof(instance_identity) + 4 + 8;
  auto join = encode(join_group{{"g"}, 1_identity, 4, 5, {{0, 6}}});
  join[count_at + 3] = std::byte{0xff};
  BOOST_TEST(!decode_join_group(join));
  join_group large{.group = {"g"}, .shared = {}, .ranks = std::vector<joined_rank>(most_group_ranks)};
  BOOST_TEST(decode_join_group(encode(large)).has_value());
  large.ranks.emplace_back();
  BOOST_TEST(!decode_join_group(encode(large)));
  propose_lengths many{.group = {"g"}, .proposals = std::vector<proposal>(most_frame_questions)};
  BOOST_TEST(decode_propose_lengths(encode(many)).has_value());
  BOOST_TEST(encode(many).size() < network::most_frame_bytes);
  many.proposals.emplace_back();
  BOOST_TEST(!decode_propose_lengths(encode(many)));
}

BOOST_AUTO_TEST_CASE(a_name_that_nothing_could_show_is_refused) {
  for (const std::string& name : {std::string(), std::string("a\nb"), std::string("\xff"), std::string(129, 'a')}) {
    const auto read = decode_seek_group(encode(seek_group{{name}, false}));
    BOOST_TEST(!read);
    BOOST_TEST((!read && read.error().code() == error_code::malformed));
  }
  BOOST_TEST(decode_seek_group(encode(seek_group{{std::string(128, 'a')}, false})).has_value());
  BOOST_TEST(!decode_seek_group(encode(seek_group{{"g", {0, "\xff"}}, false})));
}

BOOST_AUTO_TEST_CASE(a_reason_is_cut_to_what_may_be_sent) {
  const std::string long_one(longest_group_reason + 100, 'x');
  const auto lost = decode_group_saying(encode(lost_epoch{{"g"}, some_epoch, true, long_one}));
  BOOST_REQUIRE(lost);
  BOOST_TEST(std::get<lost_epoch>(*lost).why.size() == longest_group_reason);
}

BOOST_AUTO_TEST_CASE(no_body_however_altered_is_read_beyond_its_end) {
  std::mt19937 random(5);
  for (const group_sample& each : group_samples()) {
    for (int round = 0; round < 5000; ++round) {
      auto bytes = each.bytes;
      for (unsigned flips = random() % 4 + 1; flips > 0; --flips)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      bytes.resize(random() % (bytes.size() + 1));
      (void)each.reads(bytes);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
