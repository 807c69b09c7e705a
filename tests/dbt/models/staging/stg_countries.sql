select * from (
    values
        ('DE', 'Germany', 'EMEA', 0.19),
        ('FR', 'France', 'EMEA', 0.20),
        ('GB', 'United Kingdom', 'EMEA', 0.20),
        ('US', 'United States', 'AMER', 0.0)
) as seed (country_code, country_name, region, tax_rate)
