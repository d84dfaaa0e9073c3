#include "services/indexer/http/body_reader.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/support/indexer_values.hpp"
#include "tests/unit/services/indexer/http/padded_body.hpp"

using namespace cenote;
using namespace cenote::indexer;
using namespace std::chrono_literals;

namespace {

struct reader_fixture {
  /// The question of a body that is right.
  const question_body& read(std::string_view text) {
    body = std::make_unique<padded_body>(text);
    auto made = reader.read_question(body->bytes());
    BOOST_REQUIRE_MESSAGE(made.has_value(), text << ": " << (made ? "" : made.error().message()));
    question = *made;
    return question;
  }
  const question_body& read_binary(std::string_view bytes, std::string_view query) {
    body = std::make_unique<padded_body>(bytes);
    auto made = reader.read_binary_question(body->bytes(), query);
    BOOST_REQUIRE_MESSAGE(made.has_value(), query << ": " << (made ? "" : made.error().message()));
    question = *made;
    return question;
  }
  /// The refusal of a body that is wrong.
  std::string refusal_of(std::string_view text) {
    const padded_body wrong(text);
    const auto made = reader.read_question(wrong.bytes());
    BOOST_REQUIRE_MESSAGE(!made.has_value(), text << " is taken");
    BOOST_TEST((made.error().code() == error_code::invalid_argument));
    return made.error().message();
  }
  void check_refusal(std::string_view text, std::string_view part) {
    const std::string refusal = refusal_of(text);
    BOOST_TEST(refusal.find(part) != std::string::npos, text << " is refused with: " << refusal);
  }
  std::vector<std::uint32_t> tokens() const {
    return {question.question.tokens.begin(), question.question.tokens.end()};
  }
  std::vector<std::string> pods() const { return {question.question.pods.begin(), question.question.pods.end()}; }
  /// Whether the extra keys are the canonical form of these lists.
  bool has_extra_keys(const std::string& lists) const {
    const auto expected = table_of(test::json::parse(lists));
    const extra_key_view found = question.question.extra_keys;
    if (found.blocks.size() != expected.blocks.size()) return false;
    for (std::size_t i = 0; i < found.blocks.size(); ++i) {
      if (!std::ranges::equal(found.list(i), expected.view().list(i))) return false;
    }
    return true;
  }

  body_reader reader;
  std::unique_ptr<padded_body> body;
  question_body question;
};

std::string words(const std::vector<std::uint32_t>& tokens) {
  std::string bytes(tokens.size() * 4, '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(body_reading, reader_fixture)

BOOST_AUTO_TEST_CASE(all_fields_of_a_question_are_read_in_any_order) {
  read(R"( {"pod_identifiers":["a","b\n"],"cache_salt":"s","token_ids":[0,4294967295, 7],"unknown":{"x":[1,{}]},
    "lora_name":"sql","extra_keys":[null,["x",3]],"model_name":"Qwen\/Qwen3","ttl_s":1.5} )");
  BOOST_TEST(question.question.model == "Qwen/Qwen3");
  BOOST_TEST((tokens() == std::vector<std::uint32_t>{0, 4294967295U, 7}));
  BOOST_TEST((pods() == std::vector<std::string>{"a", "b\n"}));
  BOOST_TEST(question.question.lora_name == "sql");
  BOOST_TEST(has_extra_keys(R"([["s"],["x",3]])"));
  BOOST_TEST(question.has_tokens);
  BOOST_TEST(!question.prompt.has_value());
  BOOST_TEST(!question.has_block_keys);
  BOOST_TEST((question.ttl == 1500ms));
}

BOOST_AUTO_TEST_CASE(tokens_are_the_same_in_all_forms_that_json_has_for_them) {
  const std::vector<std::uint32_t> expected{0, 10, 4294967295U};
  for (const std::string_view list : {"[0,10,4294967295]", "[ 0 , 10\n,\t4294967295\r] "}) {
    for (const std::string_view rest : {"", R"(,"model_name":"m")"}) {
      read(R"({"token_ids":)" + std::string(list) + std::string(rest) + "}");
      BOOST_TEST((tokens() == expected), list);
    }
  }
  read(R"({"token_ids":[]})");
  BOOST_TEST(question.question.tokens.empty());
  read(R"({"token_ids":[ ],"model_name":"m"})");
  BOOST_TEST(question.question.model == "m");
  for (const std::string_view list : {"[00]", "[01]", "[,1]", "[1,,2]", "[1}", "[1,[2]]", "[+1]", "[0x1]", "[1e3]"}) {
    refusal_of(R"({"token_ids":)" + std::string(list) + "}");
  }
}

BOOST_AUTO_TEST_CASE(null_is_as_if_the_field_were_not_there) {
  read(R"({"model_name":"m","token_ids":null,"prompt":"text","pod_identifiers":null,"extra_keys":null,"ttl_s":null})");
  BOOST_TEST(!question.has_tokens);
  BOOST_TEST((question.prompt == "text"));
  BOOST_TEST(question.question.pods.empty());
  BOOST_TEST(question.question.extra_keys.blocks.empty());
}

BOOST_AUTO_TEST_CASE(keys_are_numbers_or_decimal_text) {
  read(R"({"block_keys":[1,"18446744073709551615",18446744073709551615,"007"]})");
  BOOST_TEST(question.has_block_keys);
  const std::vector<std::uint64_t> keys(question.question.block_keys.begin(), question.question.block_keys.end());
  BOOST_TEST((keys == std::vector<std::uint64_t>{1, 18446744073709551615U, 18446744073709551615U, 7}));
}

BOOST_AUTO_TEST_CASE(extra_keys_come_in_the_form_of_events) {
  for (const std::string lists :
       {R"([])", R"([null,null])", R"([[],["a",1,-1,1.5,true,false,null,["b"],{"k":1,"longer":[2],"a":"c"}]])",
        R"([[{"bytes":"00ff"},{"bytes":""},{"b":"","x":1}],null,[18446744073709551615,-9223372036854775808,1e300]])"}) {
    read(R"({"model_name":"m","token_ids":[],"extra_keys":)" + lists + "}");
    BOOST_TEST(has_extra_keys(lists), lists);
  }
}

BOOST_AUTO_TEST_CASE(a_salt_is_the_first_blocks_last_extra_key) {
  read(R"({"model_name":"m","token_ids":[1],"cache_salt":"s"})");
  BOOST_TEST(has_extra_keys(R"([["s"]])"));
  read(R"({"model_name":"m","token_ids":[1],"cache_salt":"s","extra_keys":[["a"],["b"]]})");
  BOOST_TEST(has_extra_keys(R"([["a","s"],["b"]])"));
  read(R"({"model_name":"m","token_ids":[1],"cache_salt":"","extra_keys":[null]})");
  BOOST_TEST(has_extra_keys("[null]"));
}

BOOST_AUTO_TEST_CASE(binary_tokens_have_their_other_fields_in_the_query) {
  read_binary(words({1, 4294967295U}),
              "model_name=Qwen%2FQwen3&pod_identifiers=a&pod_identifiers=b+c&lora_name=l&cache_salt=s%26&x=%zz"
              "&extra_keys=%5Bnull,%5B%22k%22%5D%5D");
  BOOST_TEST(question.question.model == "Qwen/Qwen3");
  BOOST_TEST((tokens() == std::vector<std::uint32_t>{1, 4294967295U}));
  BOOST_TEST((pods() == std::vector<std::string>{"a", "b c"}));
  BOOST_TEST(question.question.lora_name == "l");
  BOOST_TEST(has_extra_keys(R"([["s&"],["k"]])"));
  BOOST_TEST(question.has_tokens);
}

BOOST_AUTO_TEST_CASE(binary_tokens_that_are_wrong_are_refused) {
  const auto refusal = [&](std::string_view bytes, std::string_view query) {
    const padded_body wrong(bytes);
    const auto made = reader.read_binary_question(wrong.bytes(), query);
    BOOST_REQUIRE_MESSAGE(!made.has_value(), query << " is taken");
    return made.error().message();
  };
  BOOST_TEST(refusal("12345", "model_name=m").find("4 bytes each") != std::string::npos);
  BOOST_TEST(refusal(std::string((body_reader::most_tokens + 1) * 4, 'x'), "").find("1048577") != std::string::npos);
  BOOST_TEST(refusal("", "model_name=%4").find("model_name") != std::string::npos);
  BOOST_TEST(refusal("", "model_name=a&model_name=b").find("twice") != std::string::npos);
  BOOST_TEST(refusal("", "pod_identifiers=").find("pod_identifiers") != std::string::npos);
  BOOST_TEST(refusal("", "model_name=" + std::string(257, 'x')).find("256") != std::string::npos);
  BOOST_TEST(refusal("", "token_ids=1").find("token_ids") != std::string::npos);
  BOOST_TEST(refusal("", "extra_keys=%7B%7D").find("extra_keys") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_wrong_type_is_refused_with_the_field_and_what_would_be_right) {
  check_refusal(R"({"model_name":7})", "model_name is 7; right would be a text");
  check_refusal(R"({"model_name":["m"]})", "model_name is a list");
  check_refusal(R"({"token_ids":"1"})", "token_ids is \"1\"; right would be a list of whole numbers");
  check_refusal(R"({"token_ids":{"0":1}})", "token_ids is an object");
  check_refusal(R"({"token_ids":[1,-1]})", "token_ids[1] is -1; right would be whole numbers from 0 to 4294967295");
  check_refusal(R"({"token_ids":[4294967296]})", "token_ids[0] is 4294967296");
  check_refusal(R"({"token_ids":[1.0]})", "token_ids[0] is 1.0");
  check_refusal(R"({"token_ids":[1,"2"]})", "token_ids[1] is \"2\"");
  check_refusal(R"({"token_ids":[[1]]})", "token_ids[0] is a list");
  check_refusal(R"({"token_ids":[99999999999999999999999]})", "token_ids[0]");
  check_refusal(R"({"block_keys":["x"]})", "block_keys[0] is \"x\"");
  check_refusal(R"({"block_keys":[""]})", "block_keys[0]");
  check_refusal(R"({"block_keys":["-1"]})", "block_keys[0]");
  check_refusal(R"({"block_keys":["18446744073709551616"]})", "block_keys[0]");
  check_refusal(R"({"block_keys":[-1]})", "block_keys[0]");
  check_refusal(R"({"block_keys":[true]})", "block_keys[0]");
  check_refusal(R"({"pod_identifiers":[1]})", "pod_identifiers[0] is 1");
  check_refusal(R"({"pod_identifiers":[""]})", "pod_identifiers[0] is empty");
  check_refusal(R"({"pod_identifiers":"a"})", "pod_identifiers is \"a\"");
  check_refusal(R"({"extra_keys":[1]})", "extra_keys[0] is 1; right would be null or a list");
  check_refusal(R"({"extra_keys":[[[[[[1]]]]]]})", "extra_keys[0] is deeper");
  check_refusal(R"({"extra_keys":[[{"bytes":"0"}]]})", "extra_keys[0].bytes");
  check_refusal(R"({"extra_keys":[[{"bytes":5}]]})", "extra_keys[0].bytes is 5");
  check_refusal(R"({"ttl_s":0})", "ttl_s is 0");
  check_refusal(R"({"ttl_s":1e9})", "ttl_s is 1e9");
  check_refusal(R"({"ttl_s":"1"})", "ttl_s is \"1\"");
  check_refusal(R"({"token_ids":[1],"token_ids":[2]})", "token_ids is there twice");
}

BOOST_AUTO_TEST_CASE(names_and_lists_have_bounds) {
  check_refusal(R"({"model_name":")" + std::string(257, 'm') + "\"}", "model_name has 257 bytes; at most 256");
  check_refusal(R"({"pod_identifiers":[")" + std::string(257, 'p') + "\"]}", "pod_identifiers[0] has 257 bytes");
  std::string many = R"({"pod_identifiers":["p")";
  for (std::size_t i = 0; i < body_reader::most_pods; ++i) many += R"(,"p")";
  check_refusal(many + "]}", "pod_identifiers has more than 65536");
  std::string tokens = R"({"token_ids":[1)";
  for (std::size_t i = 0; i < body_reader::most_tokens; ++i) tokens += ",1";
  check_refusal(tokens + "]}", "token_ids has more than 1048576");
  std::string wide = R"({"extra_keys":[[{"a":0)";
  for (std::size_t i = 0; i < map_order::most_entries; ++i) wide += ",\"b" + std::to_string(i) + "\":1";
  check_refusal(wide + "}]]}", "more than 32 fields");
}

BOOST_AUTO_TEST_CASE(what_is_no_json_object_is_refused) {
  for (const std::string_view text : {"",
                                      " ",
                                      "null",
                                      "7",
                                      "[]",
                                      "\"x\"",
                                      "{",
                                      "}",
                                      "{]",
                                      R"({"model_name":"m")",
                                      R"({"model_name" "m"})",
                                      R"({model_name:"m"})",
                                      R"({"model_name":"m"}x)",
                                      R"({"model_name":"m"}{})",
                                      R"({"model_name":"m"},)",
                                      R"({"token_ids":[1,2})",
                                      R"({"token_ids":[1 2]})",
                                      R"({"token_ids":[1,]})",
                                      R"({"model_name":"\x"})",
                                      R"({"model_name":"\ud800"})",
                                      "{\"model_name\":\"\xff\"}",
                                      "\xef\xbb\xbf",
                                      R"({"model_name":nul})",
                                      "{\"model_name\":\"a\nb\"}",
                                      R"({"prompt":tru})"}) {
    refusal_of(text);
  }
  std::string deep = R"({"unknown":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const padded_body body_of_lists(deep);
  static_cast<void>(reader.read_question(body_of_lists.bytes()));  // refused or skipped, but the program goes on
  check_refusal(R"({"extra_keys":[)" + std::string(100'000, '[') + std::string(100'000, ']') + "]}", "extra_keys[0]");
}

BOOST_AUTO_TEST_CASE(publishers_are_read_and_what_they_lack_is_named) {
  const auto refusal = [&](std::string_view text) {
    const padded_body wrong(text);
    const auto made = reader.read_publisher(wrong.bytes());
    BOOST_REQUIRE_MESSAGE(!made.has_value(), text << " is taken");
    return made.error().message();
  };
  const padded_body right(R"({"name":"a","endpoint":"tcp://h:1","replay":null,"pod":"p","model":"m","node":"n",)"
                          R"("engine":"vllm","other":1})");
  const auto read = reader.read_publisher(right.bytes());
  BOOST_REQUIRE(read.has_value());
  BOOST_TEST(read->name == "a");
  BOOST_TEST(read->endpoint == "tcp://h:1");
  BOOST_TEST(read->replay.empty());
  BOOST_TEST(read->pod == "p");
  BOOST_TEST(read->model == "m");
  BOOST_TEST(read->node == "n");
  BOOST_TEST(read->engine == "vllm");
  BOOST_TEST(refusal(R"({"endpoint":"tcp://h:1"})").find("name is missing") != std::string::npos);
  BOOST_TEST(refusal(R"({"name":"a"})").find("endpoint is missing") != std::string::npos);
  BOOST_TEST(refusal(R"({"name":"a","endpoint":7})").find("endpoint is 7") != std::string::npos);
  BOOST_TEST(refusal(R"({"name":"a","name":"b"})").find("twice") != std::string::npos);
  BOOST_TEST(refusal(R"({"name":"a","endpoint":")" + std::string(513, 'x') + "\"}").find("512") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_is_to_be_cleared_is_read) {
  const padded_body right(R"({"pod":"p","medium":"gpu"})");
  const auto read = reader.read_clear(right.bytes());
  BOOST_REQUIRE(read.has_value());
  BOOST_TEST(read->pod == "p");
  BOOST_TEST(read->medium == "gpu");
  const padded_body wrong(R"({"medium":"gpu"})");
  BOOST_TEST(reader.read_clear(wrong.bytes()).error().message().find("pod is missing") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_for_questions_like_those_before) {
  std::string text =
      R"({"model_name":"Qwen/Qwen3-32B","pod_identifiers":["pod-1","pod-2"],"cache_salt":"s","token_ids":[1)";
  for (int i = 0; i < 16'000; ++i) text += "," + std::to_string(i * 7);
  const padded_body json(text + "]}");
  const padded_body binary(std::string(64'000, 'x'));
  const auto ask = [&] {
    if (!reader.read_question(json.bytes()) || !reader.read_binary_question(binary.bytes(), "model_name=m%2Fn")) {
      throw std::runtime_error("refused");
    }
  };
  ask();
  ask();
  const auto counts = test::allocations_during(ask);
  BOOST_TEST(counts.calls <= 2U);  // texts of a list's elements' names
}

BOOST_AUTO_TEST_SUITE_END()
