#include "core/page/svg_chart.hpp"

#include <boost/test/unit_test.hpp>

using namespace cenote;

BOOST_AUTO_TEST_SUITE(svg_chart)

BOOST_AUTO_TEST_CASE(ticks_are_round_and_within) {
  BOOST_TEST(round_ticks(0, 1, 5) == (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}),
             boost::test_tools::tolerance(1e-9) << boost::test_tools::per_element());
  for (const double high : {0.003, 0.7, 1.0, 9.9, 42.0, 12'345.0}) {
    const auto ticks = round_ticks(0, high, 5);
    BOOST_TEST(ticks.size() >= 3U);
    BOOST_TEST(ticks.size() <= 7U);
    BOOST_TEST(ticks.front() == 0.0);
    BOOST_TEST(ticks.back() <= high * 1.000001);
  }
  BOOST_TEST(round_ticks(3, 3, 5).size() == 1U);
}

BOOST_AUTO_TEST_CASE(text_is_escaped) {
  BOOST_TEST(escape_html("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  const chart plot{
      .title = "<t>", .x = {.label = "&"}, .y = {.label = "\""}, .series = {{.name = "<s>"}}, .marks = {{0.5, "<m>"}}};
  const auto figure = figure_of(plot);
  for (const auto* bad : {"<t>", "<s>", "<m>"}) BOOST_TEST(figure.find(bad) == std::string::npos, bad);
}

BOOST_AUTO_TEST_CASE(each_value_is_told_on_hover_and_in_a_table) {
  chart plot{.title = "t",
             .x = {.label = "when", .high = 10},
             .y = {.high = 1},
             .series = {{.name = "a", .points = {{1, 0.5}, {2, 0.25}}}, {.name = "b", .points = {{2, 0.75}}}}};
  plot.y.show = [](double value) { return std::to_string(static_cast<int>(value * 100)) + " of 100"; };
  const auto figure = figure_of(plot);
  const auto has = [&](const char* part) { return figure.find(part) != std::string::npos; };
  BOOST_TEST(has("<title>a: 50 of 100 at 1</title>"));
  BOOST_TEST(has("<tr><th>when</th><th>a</th><th>b</th></tr>"));
  BOOST_TEST(has("<tr><td>1</td><td>50 of 100</td><td></td></tr>"));
  BOOST_TEST(has("<tr><td>2</td><td>25 of 100</td><td>75 of 100</td></tr>"));
}

BOOST_AUTO_TEST_CASE(labels_that_would_run_into_each_other_go_into_a_second_row_or_are_left_out) {
  chart plot{.title = "t", .x = {.high = 100}, .y = {}, .series = {{.name = "s", .points = {{0, 0}}}}};
  const auto shown = [&] {
    const auto figure = figure_of(plot);
    std::size_t count = 0;
    for (std::size_t at = 0; (at = figure.find(">1000", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (int i = 0; i <= 100; ++i) plot.x.ticks.push_back({static_cast<double>(i), std::to_string(1'000'000 + i)});
  BOOST_TEST(shown() >= 16U);
  BOOST_TEST(shown() <= 26U);
  plot.x.ticks.clear();
  for (int i = 0; i <= 14; ++i) plot.x.ticks.push_back({i * 7.0, std::to_string(1'000'000 + i)});
  BOOST_TEST(shown() == 15U);
}

BOOST_AUTO_TEST_CASE(lines_beyond_the_colours_are_dotted) {
  chart plot{.title = "t", .x = {.high = 1}, .y = {.high = 1}};
  for (int i = 0; i < 9; ++i) plot.series.push_back({.name = "s", .points = {{0, 0}, {1, 1}}});
  const auto figure = figure_of(plot);
  BOOST_TEST(figure.find("line s0 dotted") != std::string::npos);
  BOOST_TEST(figure.find("key k0 dotted") != std::string::npos);
  BOOST_TEST(figure.find("line s1 dotted") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(points_outside_are_drawn_at_the_edge) {
  const chart plot{.title = "t",
                   .x = {.high = 10},
                   .y = {.high = 1},
                   .series = {{.name = "s", .points = {{-5, 0}, {5, 0.5}, {50, 7}}}}};
  const auto figure = figure_of(plot);
  BOOST_TEST(figure.find("points=\"84.0,238.0 385.0,136.0 686.0,34.0 \"") != std::string::npos, figure);
}

BOOST_AUTO_TEST_SUITE_END()
