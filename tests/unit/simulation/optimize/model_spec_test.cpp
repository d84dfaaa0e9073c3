#include "simulation/optimize/model_spec.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

namespace cenote::simulation {

namespace {

std::uint64_t bytes_in(std::string_view config, std::uint64_t ranks = 1) {
  const auto spec = parse_model(config);
  BOOST_REQUIRE_MESSAGE(spec, (spec ? "" : spec.error().message()));
  return spec->bytes_per_token(ranks).value();
}

std::string fault_in(std::string_view config) {
  const auto spec = parse_model(config);
  BOOST_REQUIRE(!spec);
  BOOST_TEST((spec.error().code() == error_code::malformed));
  return spec.error().message();
}

constexpr std::string_view grouped = R"({"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "hidden_size": 4096, "torch_dtype": "bfloat16"})";

}  // namespace

BOOST_AUTO_TEST_SUITE(model_specs)

BOOST_AUTO_TEST_CASE(bytes_a_token_are_those_of_keys_and_values_of_all_layers) {
  BOOST_TEST(bytes_in(grouped) == 2U * 32 * 8 * 128 * 2);
  BOOST_TEST(bytes_in(R"({"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768,
    "dtype": "float32"})") == 2U * 12 * 768 * 4);
  BOOST_TEST(bytes_in(R"({"text_config": {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64,
    "num_key_value_heads": 1, "kv_cache_dtype": "fp8_e4m3"}})") == 2U * 2 * 64);
  BOOST_TEST(bytes_in(R"({"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64, "kv_cache_dtype": "auto",
    "num_key_value_heads": null, "torch_dtype": "float16"})") == 2U * 2 * 4 * 64 * 2);
}

BOOST_AUTO_TEST_CASE(latent_attention_keeps_one_latent_a_layer) {
  BOOST_TEST(bytes_in(R"({"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "torch_dtype": "bfloat16"})") == 61U * (512 + 64) * 2);
}

BOOST_AUTO_TEST_CASE(ranks_store_a_head_each_at_least) {
  BOOST_TEST(bytes_in(grouped, 8) == bytes_in(grouped));
  BOOST_TEST(bytes_in(grouped, 32) == 4 * bytes_in(grouped));
  const auto spec = parse_model(grouped);
  for (const std::uint64_t ranks : {std::uint64_t{0}, std::uint64_t{3}, ~std::uint64_t{0}}) {
    const auto bytes = spec->bytes_per_token(ranks);
    BOOST_REQUIRE(!bytes);
    BOOST_TEST((bytes.error().code() == error_code::invalid_argument));
  }
  BOOST_TEST(find_model("deepseek-v3")->bytes_per_token(8).value() == 8U * 70'272);
}

BOOST_AUTO_TEST_CASE(layers_with_a_window_do_not_grow) {
  const auto spec = parse_model(R"({"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 64, "dtype": "bfloat16", "sliding_window": 1024,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})");
  BOOST_REQUIRE(spec);
  BOOST_TEST(spec->bytes_per_token().value() == 2U * 1 * 4 * 64 * 2);
  BOOST_TEST(spec->window_bytes().value() == 1024U * 2 * 2 * 4 * 64 * 2);
  BOOST_TEST(spec->attention_flop() == 4.0 * 1 * 8 * 64);
  const auto off = parse_model(R"({"num_hidden_layers": 3, "num_attention_heads": 8, "head_dim": 64,
    "sliding_window": 1024, "use_sliding_window": false})");
  BOOST_TEST(off->window_layers == 0U);
  const auto all = parse_model(R"({"num_hidden_layers": 3, "num_attention_heads": 8, "head_dim": 64,
    "sliding_window": 1024})");
  BOOST_TEST(all->bytes_per_token().value() == 0U);
}

BOOST_AUTO_TEST_CASE(presets_have_the_bytes_and_the_parameters_that_they_are_known_for) {
  const auto check = [](std::string_view name, std::uint64_t bytes, double billions) {
    BOOST_TEST_CONTEXT(name) {
      const auto spec = find_model(name);
      BOOST_REQUIRE(spec);
      BOOST_TEST(spec->bytes_per_token().value() == bytes);
      BOOST_TEST(spec->active_parameters() / 1e9 == billions, boost::test_tools::tolerance(0.02));
    }
  };
  check("deepseek-v3", 70'272, 37.5);
  check("qwen3-coder-480b", 253'952, 35);
  check("llama-3-8b", 131'072, 8.03);
  check("llama-3-70b", 327'680, 70.6);
  check("llama-3.1-405b", 516'096, 405.8);
  check("qwen3-8b", 147'456, 8.19);
  check("qwen3-32b", 262'144, 32.8);
  check("qwen3-30b-a3b", 98'304, 3.35);
  check("qwen3-235b", 192'512, 22.2);
}

BOOST_AUTO_TEST_CASE(parameters_follow_only_where_all_sizes_are_there) {
  BOOST_TEST(parse_model(grouped)->active_parameters() == 0.0);
  // A layer: 2 · 8 · 4 · (2 + 2) of attention and 3 · 8 · 16 = 384, and 2 · 100 · 8 of embeddings.
  const auto small = parse_model(R"({"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4, "hidden_size": 8,
    "intermediate_size": 16, "vocab_size": 100})");
  BOOST_TEST(small->active_parameters() == 256.0 + 384 + 1600);
  // Two experts of four: 2 · 3 · 8 · 16 = 768 and a router of 8 · 4.
  const auto experts = parse_model(R"({"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4,
    "hidden_size": 8, "intermediate_size": 16, "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2,
    "tie_word_embeddings": true})");
  BOOST_TEST(experts->active_parameters() == 256.0 + 768 + 32 + 800);
}

BOOST_AUTO_TEST_CASE(a_step_reads_the_experts_that_its_tokens_pass) {
  const auto dense = find_model("llama-3-8b");
  BOOST_TEST(dense->step_parameters(64) == dense->active_parameters());
  // Two of four experts of 3 · 8 · 16 weights each: a second token passes one that the first does not, on average.
  const auto experts = parse_model(R"({"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4,
    "hidden_size": 8, "intermediate_size": 16, "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2,
    "tie_word_embeddings": true})");
  const double active = experts->active_parameters();
  BOOST_TEST(experts->step_parameters(1) == active);
  BOOST_TEST(experts->step_parameters(2) == active + 384);
  BOOST_TEST(experts->step_parameters(1000) == active + 2 * 384, boost::test_tools::tolerance(1e-12));
  // All of its 671 billion, less the layer that predicts further tokens.
  BOOST_TEST(find_model("deepseek-v3")->step_parameters(100'000) / 1e9 == 671.0, boost::test_tools::tolerance(0.02));
  BOOST_TEST(parse_model(grouped)->step_parameters(8) == 0.0);
}

BOOST_AUTO_TEST_CASE(an_error_names_the_member) {
  BOOST_TEST(fault_in("{}") == "num_hidden_layers is missing, or 0");
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 2})") == "num_attention_heads is missing, or 0");
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 2, "num_attention_heads": 2})").contains("head_dim"));
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 8})").contains("head_dim"));
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 2, "num_attention_heads": 2, "kv_lora_rank": 8})")
                 .contains("qk_rope_head_dim"));
  BOOST_TEST(fault_in(R"({"num_hidden_layers": "2"})").contains("num_hidden_layers"));
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 2, "dtype": "float2"})")
                 .contains("float2"));
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 2, "layer_types":
    ["full_attention"]})")
                 .contains("layer_types has 1 names"));
  BOOST_TEST(fault_in(R"({"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 2, "layer_types":
    ["linear_attention"]})")
                 .contains("linear_attention"));
}

BOOST_AUTO_TEST_CASE(hostile_configurations_are_refused) {
  for (const std::string_view text :
       {"", "[", "[]", "1", "null", R"({"text_config": 3})", R"({"text_config": {}})", R"({"num_hidden_layers": -1})",
        R"({"num_hidden_layers": 1e3})", R"({"num_hidden_layers": 18446744073709551616})",
        R"({"num_hidden_layers": 2, "num_attention_heads": 4000000000, "head_dim": 1})"}) {
    BOOST_TEST(!parse_model(text).has_value(), text);
  }
  BOOST_TEST(!parse_model(std::string(100'000, '[')).has_value());
  const auto huge = parse_model(R"({"num_hidden_layers": 1048576, "num_attention_heads": 1048576,
    "head_dim": 1048576, "torch_dtype": "float32"})");
  BOOST_REQUIRE(huge);
  BOOST_TEST(huge->bytes_per_token().value() == std::uint64_t{1} << 63);
  BOOST_TEST(!huge->bytes_per_token(1'048'576 * std::uint64_t{2}).has_value());
}

BOOST_AUTO_TEST_CASE(an_unknown_preset_names_the_known_ones) {
  BOOST_TEST(find_model("llama").error().message().contains("llama-3-8b"));
  BOOST_TEST(find_gpu("h900").error().message().contains("h800"));
  BOOST_TEST(find_gpu("h20")->bf16_flops == 148e12);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
